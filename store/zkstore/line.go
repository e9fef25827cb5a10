package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/observed"
)

const (
	// turnKept is how long each in line has before the next one is called.
	turnKept = time.Second
	// placeKept is how long a place survives without an Await: from one poll to the next.
	placeKept = 5 * time.Second
)

// place is one who waits: an ephemeral sequential znode.
type place struct {
	node, instance string
	number         int32
	name           string
}

// parsePlace reads the name of a znode in line. Ids have no tilde in them.
func parsePlace(name string) (place, bool) {
	parts := strings.Split(name, "~")
	if len(parts) != 3 {
		return place{}, false
	}
	n, err := strconv.ParseInt(parts[2], 10, 32)
	return place{node: parts[0], instance: parts[1], number: int32(n), name: name}, err == nil
}

func (p place) is(c baton.Candidate) bool { return p.node == c.NodeID && p.instance == c.InstanceID }

// order puts places in the order in which they were taken. ZooKeeper counts
// with 32 bits and a sign, and goes on below zero: what counts is the distance.
func order(places []place) {
	slices.SortFunc(places, func(a, b place) int {
		switch d := a.number - b.number; {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return 0
	})
}

// places are those who wait for a group, in their order.
func (c *client) places(ctx context.Context, group string) ([]place, error) {
	names, err := c.children(ctx, c.path("line", group))
	if err != nil {
		return nil, err
	}
	var places []place
	for _, name := range names {
		if p, ok := parsePlace(name); ok {
			places = append(places, p)
		}
	}
	order(places)
	return places, nil
}

func find(places []place, c baton.Candidate) int {
	return slices.IndexFunc(places, func(p place) bool { return p.is(c) })
}

func waits(places []place, node string) bool {
	return slices.ContainsFunc(places, func(p place) bool { return p.node == node })
}

// first reports whether c goes before all others: a successor that waits, or the head of the line.
func first(places []place, successor string, c baton.Candidate) bool {
	if successor != "" && waits(places, successor) {
		return c.NodeID == successor
	}
	return len(places) == 0 || places[0].is(c)
}

// turnLeft is for how long a group that was just vacated is kept for others
// than c. It compares stamps of two machines, so it may be wrong by what their
// clocks differ: a candidate from aside may get in, or come a second later.
// Nothing rests on it.
func (s *Store) turnLeft(ctx context.Context, group string, vacant observed.Record, c baton.Candidate) (time.Duration, error) {
	if vacant.Last == nil {
		return 0, nil
	}
	since := time.Since(time.UnixMilli(vacant.Last.Ended))
	if since < 0 || since >= turnKept {
		return 0, nil
	}
	places, err := s.places(ctx, group)
	if err != nil || first(places, vacant.Successor, c) {
		return 0, err
	}
	return turnKept - since, nil
}

// End ends the leadership of exactly this term, or begins to.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	err := s.leases.End(ctx, group, term, e, func(ctx context.Context) error {
		places, err := s.places(ctx, group)
		if err != nil || waits(places, e.Successor) {
			return err
		}
		return &baton.ConflictError{
			Reason:  baton.ConflictNotInLine,
			Message: fmt.Sprintf("node %q does not wait for group %q: it cannot succeed", e.Successor, group),
		}
	})
	if err == nil && e.Successor != "" {
		s.nudge(ctx, group, e.Successor)
	}
	return err
}

// nudge lets a named successor know, which otherwise looks at nothing but the
// one before it in line. If it does not reach it, the head of the line is called.
func (s *Store) nudge(ctx context.Context, group, node string) {
	ctx, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	places, err := s.places(ctx, group)
	if err != nil {
		return
	}
	for _, p := range places {
		if p.node == node {
			_ = s.do(ctx, func(conn *zk.Conn) error {
				_, err := conn.Set(s.path("line", group, p.name), []byte("successor"), -1)
				return err
			})
		}
	}
}

// Await takes a place in line and returns when it is c's turn: at once when the
// group is vacant and nobody is ahead, and a second later for each who is ahead
// and does not come. Each in line looks at the one before it, and only the first
// at the group: one vacancy wakes one. For the holder it is always its turn.
func (s *Store) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	inner, cancel := s.leases.Begin(ctx, false)
	defer cancel()
	return s.leases.Fail(ctx, "await", s.await(inner, group, c))
}

func (s *Store) await(ctx context.Context, group string, c baton.Candidate) error {
	if !s.keepers.keeps(group, c) {
		now, err := s.leases.Look(ctx, group)
		if err != nil {
			return err
		}
		if h := now.Record.Holder; h == nil {
			places, err := s.places(ctx, group)
			if err != nil || first(places, now.Record.Successor, c) {
				return err
			}
		} else if h.Node == c.NodeID && h.Instance == c.InstanceID {
			return nil
		}
	}
	return s.keepers.await(ctx, s, group, c)
}

// takePlace makes the znode of one who waits. Whether it was made the line
// shows; one that nobody waits for any more is not left behind.
func (c *client) takePlace(ctx context.Context, group string, who baton.Candidate) error {
	const made, abandoned = 1, 2
	var state atomic.Int32
	folder := c.path("line", group)
	err := c.do(ctx, func(conn *zk.Conn) error {
		name, err := conn.Create(folder+"/"+who.NodeID+"~"+who.InstanceID+"~", nil, zk.FlagEphemeral|zk.FlagSequence, c.acl)
		if err == nil && !state.CompareAndSwap(0, made) {
			_ = conn.Delete(name, -1)
		}
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return c.makeNode(ctx, folder)
	case disconnected(err):
		// What was asked on the connection before is decided when this is answered:
		// a session that has moved takes nothing from where it was.
		return c.linearized(ctx, func() error { return nil })
	case err != nil && state.CompareAndSwap(0, abandoned):
		return kindOf(err)
	}
	return nil
}

// leavePlaces removes the places of one who waits.
func (c *client) leavePlaces(ctx context.Context, group string, who baton.Candidate) error {
	places, err := c.places(ctx, group)
	if err != nil {
		return err
	}
	for _, p := range places {
		if !p.is(who) {
			continue
		}
		err := c.again(ctx, func(conn *zk.Conn) error { return conn.Delete(c.path("line", group, p.name), -1) })
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}
