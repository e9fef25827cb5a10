package chaos

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"baton"
	"baton/internal/fleet"
)

// Report says what was done to a leader and what happened after. All times
// count from just before it was done.
type Report struct {
	Action string `json:"action"`
	Target Leader `json:"target"`
	// AlsoClaimed are other nodes that said they lead, with lower tokens.
	AlsoClaimed []Leader `json:"also_claimed"`
	// BeganAtNS is from before it was done, DoneAtNS from after, on the clock of the nodes' events.
	BeganAtNS int64 `json:"began_at_ns"`
	DoneAtNS  int64 `json:"done_at_ns"`
	// HealedAfterMS is when it was undone; nil for what is not.
	HealedAfterMS *float64 `json:"healed_after_ms"`
	// Stopped is when the target was first seen not to lead under its token any
	// more: as it said itself, or because it is gone.
	Stopped *Seen `json:"stopped"`
	// Successor is the first leader seen with a higher token; it may be the target again.
	Successor *Successor `json:"successor"`
	// Rejoined is when the target was first seen to know its leader after it was undone.
	Rejoined *Seen `json:"rejoined"`
	// WritesRefused is how many writes of the target the resource has refused
	// since the begin.
	WritesRefused int64 `json:"writes_refused"`
	// Interrupted: it was undone early, and not waited for the rest.
	Interrupted bool `json:"interrupted"`
}

// Leader is a node that says it leads.
type Leader struct {
	NodeID     string     `json:"node_id"`
	PID        int        `json:"pid"`
	FenceToken baton.Term `json:"fence_token"`
}

// Seen is a moment at which the target was seen to be something.
type Seen struct {
	AfterMS float64 `json:"after_ms"`
	// Role is what it said, or "gone".
	Role string `json:"role"`
}

// Successor is the leader after the target.
type Successor struct {
	Leader
	AfterMS float64 `json:"after_ms"`
}

func claim(s fleet.Status) Leader {
	return Leader{NodeID: s.NodeID, PID: s.PID, FenceToken: s.FenceToken}
}

// observer fills in a report from what the nodes say, and tells as it goes.
type observer struct {
	Report
	tell    io.Writer
	began   time.Time
	healed  bool
	gone    bool  // the target's process, when it was looked for last
	refused int64 // by the target's own count, before
}

// say prints a line for people.
func (o *observer) say(format string, args ...any) {
	_, _ = fmt.Fprintf(o.tell, format+"\n", args...)
}

func (o *observer) after(at time.Time) float64 {
	return float64(at.Sub(o.began).Microseconds()) / 1000
}

func (o *observer) take(l look) {
	if l.node == o.Target.NodeID {
		o.takeTarget(l)
	}
	if s := l.status; l.err == nil && s.Role == fleet.RoleLeader && s.FenceToken > o.Target.FenceToken && o.Successor == nil {
		o.Successor = &Successor{Leader: claim(s), AfterMS: o.after(l.at)}
		again := ""
		if s.NodeID == o.Target.NodeID {
			again = " again"
		}
		o.say("%8.0f ms  %s leads%s, with token %d", o.Successor.AfterMS, s.NodeID, again, s.FenceToken)
	}
}

func (o *observer) takeTarget(l look) {
	role := string(l.status.Role)
	switch {
	case errors.Is(l.err, syscall.ECONNREFUSED), errors.Is(l.err, syscall.ECONNRESET):
		role, o.gone = "gone", true
	case l.err != nil:
		return // frozen, perhaps
	}
	leads := l.status.Role == fleet.RoleLeader && l.status.FenceToken == o.Target.FenceToken
	if o.Stopped == nil && !leads {
		o.Stopped = &Seen{AfterMS: o.after(l.at), Role: role}
		o.say("%8.0f ms  %s does not lead any more: %s", o.Stopped.AfterMS, l.node, role)
	}
	if l.err != nil {
		return
	}
	o.gone = false
	o.WritesRefused = max(o.WritesRefused, l.status.WritesRefused-o.refused)
	if o.healed && o.Rejoined == nil && l.status.Leader != nil {
		o.Rejoined = &Seen{AfterMS: o.after(l.at), Role: role}
		o.say("%8.0f ms  %s is %s, %s leads", o.Rejoined.AfterMS, l.node, role, l.status.Leader.NodeID)
	}
}

// settled: somebody leads, and the target has found its place if it has one.
func (o *observer) settled() bool {
	if o.HealedAfterMS == nil {
		return o.Successor != nil && o.Stopped != nil
	}
	if o.Rejoined == nil {
		return o.gone && o.Successor != nil // its place is nowhere
	}
	return o.Stopped == nil || o.Successor != nil
}
