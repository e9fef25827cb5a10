package pgstore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"baton"
	"baton/internal/storecall"
)

// hint says that something happened to a group. It may be lost, and it may be wrong.
type hint struct {
	// open: nobody leads.
	open bool
	// node and instance are first in line, "" if nobody waits: of an open group it is their turn.
	node, instance string
	// missed: hints may have been lost, so look.
	missed bool
}

func (h hint) names(c baton.Candidate) bool { return h.node == c.NodeID && h.instance == c.InstanceID }

// parseHint reads what the function of that name in the database wrote. Ids have no space in them.
func parseHint(text string) (group string, h hint, ok bool) {
	words := strings.Split(text, " ")
	h.open = words[0] == "open"
	if !h.open && words[0] != "led" {
		return "", hint{}, false
	}
	switch len(words) {
	case 2:
		return words[1], h, true
	case 4:
		h.node, h.instance = words[2], words[3]
		return words[1], h, true
	}
	return "", hint{}, false
}

// hints hands out what one connection of this process hears, whatever the
// number of groups and of those who wait. It begins to listen when somebody wants to hear.
type hints struct {
	config  *pgx.ConnConfig
	channel string
	timeout time.Duration

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	ears   map[string]map[*ear]struct{}
	listen bool // somebody does, or is about to
	closed bool
}

// ear is what one who waits hears with: the latest hint, if it has not been taken yet.
type ear struct {
	heard chan hint
	stop  func()
}

func newHints(config *pgx.ConnConfig, channel string, timeout time.Duration) *hints {
	h := &hints{config: config, channel: channel, timeout: timeout, ears: map[string]map[*ear]struct{}{}}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// of begins to hear of a group.
func (h *hints) of(group string) *ear {
	e := &ear{heard: make(chan hint, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ears[group] == nil {
		h.ears[group] = map[*ear]struct{}{}
	}
	h.ears[group][e] = struct{}{}
	e.stop = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.ears[group], e); len(h.ears[group]) == 0 {
			delete(h.ears, group)
		}
	}
	if !h.listen && !h.closed {
		h.listen = true
		h.work.Go(h.run)
	}
	return e
}

func (h *hints) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.end()
	h.work.Wait()
}

// tell gives a hint to those who want to hear of the group; with the latest
// hint the one before it is of no more use.
func (h *hints) tell(group string, what hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := range h.ears[group] {
		e.take(what)
	}
}

func (h *hints) tellAll(what hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ears := range h.ears {
		for e := range ears {
			e.take(what)
		}
	}
}

// take is called by one at a time.
func (e *ear) take(what hint) {
	select {
	case <-e.heard:
	default:
	}
	e.heard <- what
}

// run listens until close. What was missed without a connection, those who wait
// look for themselves as soon as there is one again, and every now and then anyway.
func (h *hints) run() {
	const rest = 500 * time.Millisecond
	for h.life.Err() == nil {
		h.hear()
		_ = storecall.Pause(h.life, rest)
	}
}

// hear listens on one connection until it breaks.
func (h *hints) hear() {
	ctx, cancel := context.WithTimeout(h.life, h.timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, h.config)
	if err != nil {
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closingWithin)
		defer cancel()
		_ = conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.channel}.Sanitize()); err != nil {
		return
	}
	h.tellAll(hint{missed: true})
	for {
		waiting, cancel := context.WithTimeout(h.life, h.timeout)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			if group, what, ok := parseHint(n.Payload); ok {
				h.tell(group, what)
			}
		case h.life.Err() != nil || conn.IsClosed():
			return
		default: // silence, which a cut connection keeps, too
			ctx, cancel := context.WithTimeout(h.life, h.timeout)
			err := conn.Ping(ctx)
			cancel()
			if err != nil {
				return
			}
		}
	}
}
