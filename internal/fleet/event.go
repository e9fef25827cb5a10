package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/boottime"
)

// EventType says what a node did or was told.
type EventType string

const (
	// Started: the node runs.
	Started EventType = "started"
	// Elected: it was given a leadership of this term; Nanos is how long it campaigned.
	Elected EventType = "elected"
	// ActingBegan is stamped before the leader's work begins.
	ActingBegan EventType = "acting_began"
	// ActingEnded is stamped after the leader's work has returned; SentAt is when the last request
	// had left that was to change something at the resource. A node that was killed has not said it;
	// its acting ended when it was.
	ActingEnded EventType = "acting_ended"
	// Lost: the work's context has ended, for this cause.
	Lost EventType = "lost"
	// Overrun: the work was still going on when it must not have been, Nanos after it should have ended.
	Overrun EventType = "overrun"
	// WriteAccepted: the resource let a write in; SentAt is from before it left,
	// Remaining is for how long the leadership would be trusted from At on.
	WriteAccepted EventType = "write_accepted"
	// WriteRefused: the resource refused it, for this reason.
	WriteRefused EventType = "write_refused"
	// WriteFailed: it did not land, or nobody knows whether it did.
	WriteFailed EventType = "write_failed"
	// Called: it asked its backend for something, which Reason names; SentAt is
	// from before. If that was about a lease, Term and Remaining describe it.
	Called EventType = "called"
	// AskedToResign: it was told to give up its leadership, to Reason if that is set.
	AskedToResign EventType = "asked_to_resign"
	// Resumed: it goes on with the work of Resource where the last checkpoint
	// ended: Units has been done. Nanos is how long it took to know.
	Resumed EventType = "resumed"
	// Worked: it has done the work that Units names; a checkpoint is to follow.
	Worked EventType = "worked"
	// NextServed sums up the requests for numbers since the one before.
	NextServed EventType = "next"
	// Stopping: the node was asked to end.
	Stopping EventType = "stopping"
	// Stopped: it ends now; everything is given back.
	Stopped EventType = "stopped"
)

// Event is one line of a node's log of events.
type Event struct {
	// At and SentAt are readings of [Now].
	At int64 `json:"at_ns"`
	// WallMS is the node's wall clock, with its skew. Nothing depends on it.
	WallMS int64      `json:"wall_ms"`
	Node   string     `json:"node"`
	Type   EventType  `json:"event"`
	Term   baton.Term `json:"term,omitempty"`
	// Instance is the rest of the token that Term is part of.
	Instance string `json:"instance,omitempty"`

	Resource string `json:"resource,omitempty"`
	// Seq is the write's number, the last if it has several: Count of them.
	Seq    int64 `json:"seq,omitempty"`
	Count  int64 `json:"count,omitempty"`
	SentAt int64 `json:"sent_at_ns,omitempty"`

	// Reason is a refusal's in a word; Cause is for people.
	Reason string `json:"reason,omitempty"`
	Cause  string `json:"cause,omitempty"`
	// Nanos is how long it took.
	Nanos int64 `json:"nanos,omitempty"`
	// Remaining is what was left of a lease: of one that the backend has told of, from
	// between SentAt and At on.
	Remaining int64               `json:"remaining_ns,omitempty"`
	Units     *fencedclient.Units `json:"units,omitempty"`
	Next      *NextSummary        `json:"next,omitempty"`
}

// NextSummary describes the requests for numbers of a second or so.
type NextSummary struct {
	Answered int64 `json:"answered"`
	Failed   int64 `json:"failed"`
	P50NS    int64 `json:"p50_ns"`
	P99NS    int64 `json:"p99_ns"`
	MaxNS    int64 `json:"max_ns"`
}

// Now reads the clock that events are stamped with: nanoseconds on a clock that
// never steps and is the same for all processes of a machine.
func Now() int64 { return int64(boottime.System().Now()) }

// EventLog appends events to a file, each with one write of its own, so that a
// process that is killed loses none that it has logged. A nil log drops them.
type EventLog struct {
	node string
	skew time.Duration

	mu   sync.Mutex
	file *os.File
	err  error
}

// OpenEventLog appends to the file at path.
func OpenEventLog(path, node string, skew time.Duration) (*EventLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of events: %w", err)
	}
	return &EventLog{node: node, skew: skew, file: file}, nil
}

// Log appends e. It fills in who and, unless the caller read the clock itself, when.
func (l *EventLog) Log(e Event) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.At == 0 {
		e.At = Now()
	}
	e.Node, e.WallMS = l.node, time.Now().Add(l.skew).UnixMilli()
	text, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(text, '\n'))
	}
	l.err = errors.Join(l.err, err)
}

// Close reports whether everything was written.
func (l *EventLog) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.file.Close()); err != nil {
		return fmt.Errorf("log events: %w", err)
	}
	return nil
}

// ReadEvents reads a log of events, also while it is being written: a last
// line that is not complete is left out.
func ReadEvents(path string) ([]Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	var events []Event
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read events: %s, line %d: %w", path, len(events)+1, err)
		}
		events = append(events, e)
	}
}
