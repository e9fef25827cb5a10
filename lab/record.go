package lab

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
)

// Record is all that is known about one arm after it ran. Times are
// nanoseconds on the clock of fleet.Now.
type Record struct {
	Arm     Arm
	Began   int64
	Ended   int64
	Events  []fleet.Event // of all nodes, by time
	Exits   []Exit
	Faults  []Fault
	Writes  []Write // accepted by the resource, in its order
	Audit   fencedclient.Audit
	Refused []Refusal
	Answers []Answer // to the load, by when they came
	Asked   int64    // requests of the load, answered or not
	Traffic []Traffic
	Host    []Processors
	// Skew is what each node's clocks were to be off by, Clock what the machine's was.
	Skew  map[string]time.Duration
	Clock wallClock
	// Work is what became of the work that leaders own; nil if there was none.
	Work *WorkRecord
}

// Exit is a node's process that ended before the arm did.
type Exit struct {
	Node   string `json:"node"`
	At     int64  `json:"at_ns"`
	Killed bool   `json:"killed"` // by the lab
}

// Fault is something that was done to the leader, or with it.
type Fault struct {
	// Command does the same to any fleet.
	Command string `json:"command"`
	Kind    string `json:"kind"`
	Node    string `json:"node"`
	// Term is the one that it led with.
	Term baton.Term `json:"term"`
	// Began is from before it was done, Done from after.
	Began int64 `json:"began_ns"`
	Done  int64 `json:"done_ns,omitempty"`
	// Ended is when it was undone, 0 for what cannot be.
	Ended int64 `json:"ended_ns,omitempty"`
	// LeaseEnd is when the backend was going to end the lease, as far as the
	// leader knew: never later than the truth, by at most a round trip. 0 if
	// there is no such lease.
	LeaseEnd int64 `json:"lease_end_ns,omitempty"`
	// Unseated: another leadership began before the next fault.
	Unseated bool `json:"unseated"`
}

// unseat finds out which faults have cost the leader its place.
func (r *Record) unseat() {
	for i := range r.Faults {
		until := r.Ended
		if i+1 < len(r.Faults) {
			until = r.Faults[i+1].Began
		}
		r.Faults[i].Unseated = slices.ContainsFunc(r.wins(), func(e fleet.Event) bool {
			return e.At > r.Faults[i].Began && e.At < until
		})
	}
}

// Write is a write that the resource accepted.
type Write struct {
	ID       int64      `json:"id"`
	Resource string     `json:"resource"`
	Kind     string     `json:"kind"`
	Term     baton.Term `json:"term"`
	Instance string     `json:"instance"`
	Seq      int64      `json:"seq"` // the last of Count
	Count    int64      `json:"count"`
	At       int64      `json:"at_ns"` // by the resource's stamp, in milliseconds
	// Covers is the work that a checkpoint is for.
	Covers *fencedclient.Units `json:"covers,omitempty"`
}

// Refusal is a write that the resource refused, as it logged it.
type Refusal struct {
	At       int64      `json:"at_ns"`
	Resource string     `json:"resource"`
	Kind     string     `json:"kind"`
	Token    string     `json:"token"`
	Term     baton.Term `json:"term"`
	Seq      int64      `json:"seq,omitempty"`
	Reason   string     `json:"reason"`
	// HeldBy is the token that the resource belonged to.
	HeldBy string `json:"held_by"`
}

// Answer is a number that a client was given.
type Answer struct {
	Sent, Received int64
	Token          baton.Term
	Seq            int64
}

// NodeOf is the node that was elected for a term.
func (r *Record) NodeOf(term baton.Term) string {
	for _, e := range r.Events {
		if e.Type == fleet.Elected && e.Term == term {
			return e.Node
		}
	}
	return ""
}

// Stale are the writes refused because a later leadership had the resource.
func (r *Record) Stale() []Refusal {
	var stale []Refusal
	for _, f := range r.Refused {
		if f.Reason == "stale" {
			stale = append(stale, f)
		}
	}
	return stale
}

// wallClock turns stamps of the wall clock into readings of fleet.Now.
type wallClock struct{ offset int64 }

func readWallClock() wallClock { return wallClock{fleet.Now() - time.Now().UnixNano()} }

// maxStep is how far the wall clock may be set or slewed during an arm, before
// stamps of it mean too little to compare them.
const maxStep = 50 * time.Millisecond

// check reports a wall clock that was set meanwhile.
func (c wallClock) check() error {
	if by := time.Duration(readWallClock().offset - c.offset); by.Abs() > maxStep {
		return fmt.Errorf("the machine's wall clock was set by %v during the run: its stamps cannot be compared; run again", -by)
	}
	return nil
}

func (c wallClock) at(unixNanos int64) int64 { return unixNanos + c.offset }

// readEvents reads the logs of all nodes.
func (r *Record) readEvents(paths []string) error {
	for _, path := range paths {
		events, err := fleet.ReadEvents(path)
		if err != nil {
			return err
		}
		r.Events = append(r.Events, events...)
	}
	slices.SortStableFunc(r.Events, func(a, b fleet.Event) int { return cmp.Compare(a.At, b.At) })
	for i, f := range r.Faults {
		r.Faults[i].LeaseEnd = r.leaseEnd(f.Term)
	}
	return nil
}

// leaseEnd is when the lease of a term ends by the last answer that its leader
// got from its backend; where there is none, as among peers, by what the leader
// trusted itself at its last write. 0 if nobody knows.
func (r *Record) leaseEnd(term baton.Term) int64 { return cmp.Or(r.leaseEnds(term)) }

// leaseEnds is leaseEnd by either.
func (r *Record) leaseEnds(term baton.Term) (told, trusted int64) {
	for _, e := range r.Events {
		switch {
		case e.Term != term || e.Remaining <= 0:
		case e.Type == fleet.Called:
			told = max(told, e.SentAt+e.Remaining)
		case e.Type == fleet.WriteAccepted:
			trusted = max(trusted, e.At+e.Remaining)
		}
	}
	return told, trusted
}

// readWrites reads what the resource accepted and what it makes of it itself. A
// last write of a node that was killed may land while it reads: it reads again.
func (r *Record) readWrites(ctx context.Context, c *fencedclient.Client, clock wallClock) (err error) {
	for range 20 {
		if r.Audit, err = c.Audit(ctx, ""); err != nil {
			return fmt.Errorf("audit the resource: %w", err)
		}
		r.Writes = nil
		for _, resource := range r.resources() {
			if err := r.listWrites(ctx, c, clock, resource); err != nil {
				return fmt.Errorf("list accepted writes: %w", err)
			}
		}
		if r.Audit.Writes == int64(len(r.Writes)) {
			slices.SortFunc(r.Writes, func(a, b Write) int { return cmp.Compare(a.ID, b.ID) })
			return nil
		}
		pause(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("the resource counts %d accepted writes and lists %d", r.Audit.Writes, len(r.Writes))
}

func (r *Record) listWrites(ctx context.Context, c *fencedclient.Client, clock wallClock, resource string) error {
	for after := int64(0); ; {
		page, err := c.Writes(ctx, resource, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, w := range page {
			after = w.ID
			r.Writes = append(r.Writes, Write{
				ID: w.ID, Resource: w.Resource, Kind: w.Kind, Term: w.Term, Instance: w.InstanceID,
				Seq: w.Seq, Count: w.Count, At: clock.at(w.AtMS * int64(time.Millisecond)), Covers: w.Covers,
			})
		}
	}
}

// What the nodes of a fleet write to.
const (
	ticksResource    = "ticks"
	sequenceResource = "sequence"
	jobsResource     = "jobs"
	segmentsResource = "segments"
)

// resources are those of this arm.
func (r *Record) resources() []string {
	if r.Arm.Work == nil {
		return []string{ticksResource, sequenceResource}
	}
	return []string{ticksResource, sequenceResource, jobsResource, segmentsResource}
}

// readRefused reads the resource's log.
func (r *Record) readRefused(path string, clock wallClock) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the resource's log: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Time                          time.Time
			Msg                           string
			Resource, Kind, Token, Reason string
			HeldBy                        string `json:"held_by"`
			Seq                           int64
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Msg != "write rejected" {
			continue // its word on stdout, or about something else
		}
		term, err := termOf(line.Token)
		if err != nil {
			return fmt.Errorf("read the resource's log: %w", err)
		}
		r.Refused = append(r.Refused, Refusal{
			At: clock.at(line.Time.UnixNano()), Resource: line.Resource, Kind: line.Kind, Token: line.Token,
			Term: term, Seq: line.Seq, Reason: line.Reason, HeldBy: line.HeldBy,
		})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the resource's log: %w", err)
	}
	return nil
}

// termOf is the term of a token as baton.Token.String writes it.
func termOf(token string) (baton.Term, error) {
	parts := strings.Split(token, "/")
	if len(parts) != 3 {
		return 0, fmt.Errorf("token %q: want group/term/instance", token)
	}
	term, err := strconv.ParseUint(parts[1], 10, 64)
	return baton.Term(term), err
}

// errNothing says that an arm has nothing to be judged by.
var errNothing = errors.New("the resource accepted no writes")
