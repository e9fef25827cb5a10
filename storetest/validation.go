package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"baton"
)

var validationCases = []Case{
	rule("Validation/IDs", validateIDs),
	rule("Validation/TTLs", validateTTLs),
	rule("Validation/Metadata", validateMetadata),
	rule("Validation/Terms", validateTerms),
	rule("Validation/LongestIDs", longestIDs),
}

var badIDs = []string{"", ".", "..", "with space", "slash/ed", "ünïcode", "nul\x00", "new\nline", "per%cent", strings.Repeat("x", 129)}

func (e *env) wantInvalid(what string, err error) {
	e.Helper()
	var invalid *baton.InvalidArgumentError
	if !errors.Is(err, baton.ErrInvalidArgument) || !errors.As(err, &invalid) {
		e.Errorf("%s: got %v, want *InvalidArgumentError", what, err)
		return
	}
	if invalid.Field == "" || invalid.Want == "" {
		e.Errorf("%s: the error %+v does not name the field and the bound", what, invalid)
	}
}

func validateIDs(e *env) {
	ctx := e.Context()
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	for _, bad := range badIDs {
		what := fmt.Sprintf("%.20q", bad)
		_, err := e.store.Acquire(ctx, bad, candidate("node-b"), e.long)
		e.wantInvalid("acquire in group "+what, err)
		_, err = e.store.Acquire(ctx, e.group, baton.Candidate{NodeID: bad, InstanceID: "i"}, e.long)
		e.wantInvalid("acquire for node "+what, err)
		_, err = e.store.Acquire(ctx, e.group, baton.Candidate{NodeID: "node-b", InstanceID: bad}, e.long)
		e.wantInvalid("acquire for instance "+what, err)
		for field, id := range map[string]baton.LeaseID{
			"group":    {Group: bad, NodeID: a.NodeID, InstanceID: a.InstanceID, Term: l.Term},
			"node":     {Group: e.group, NodeID: bad, InstanceID: a.InstanceID, Term: l.Term},
			"instance": {Group: e.group, NodeID: a.NodeID, InstanceID: bad, Term: l.Term},
		} {
			_, err = e.store.Renew(ctx, id, e.long)
			e.wantInvalid("renew with "+field+" "+what, err)
			e.wantInvalid("release with "+field+" "+what, e.store.Release(ctx, id))
		}
		_, err = e.store.Get(ctx, bad)
		e.wantInvalid("get of group "+what, err)
		e.wantInvalid("watch of group "+what, firstError(e.store.Watch(ctx, bad, "")))
		if line, ok := e.store.(baton.Line); ok {
			e.wantInvalid("await in group "+what, line.Await(ctx, bad, candidate("node-b")))
			e.wantInvalid("await of node "+what, line.Await(ctx, e.group, baton.Candidate{NodeID: bad, InstanceID: "i"}))
		}
		if h, ok := e.store.(baton.Historian); ok {
			_, err = h.History(ctx, bad)
			e.wantInvalid("history of group "+what, err)
		}
		if r, ok := e.store.(baton.Registry); ok {
			_, err = r.Group(ctx, bad)
			e.wantInvalid("group "+what, err)
			e.wantInvalid("delete of group "+what, r.DeleteGroup(ctx, bad))
		}
	}
	e.checkHeld(e.store, a, l.Term)
}

func validateTTLs(e *env) {
	a := candidate("node-a")
	bad := []time.Duration{0, -1, -time.Second, e.g.MaxTTL + 1, e.g.MaxTTL + time.Second, 1<<63 - 1}
	if e.g.MinTTL > 1 {
		bad = append(bad, e.g.MinTTL-1)
	}
	for _, ttl := range bad {
		_, err := e.store.Acquire(e.Context(), e.group, a, ttl)
		var invalid *baton.InvalidTTLError
		if !errors.Is(err, baton.ErrInvalidTTL) || !errors.As(err, &invalid) {
			e.Errorf("acquire for %v: got %v, want *InvalidTTLError", ttl, err)
			continue
		}
		if invalid.Max <= 0 || invalid.Max > e.g.MaxTTL || invalid.Min < 0 || invalid.Min > invalid.Max {
			e.Errorf("acquire for %v: the error names the bounds %v to %v", ttl, invalid.Min, invalid.Max)
		}
	}
	if l := e.get(e.store); l.Held() {
		e.Fatalf("a refused acquire made %s the leader", l.NodeID)
	}
	l := e.grant(e.store, a, e.long)
	for _, extend := range []time.Duration{0, -1, -time.Second, e.g.MaxTTL + time.Second} {
		_, err := e.store.Renew(e.Context(), l.ID(), extend)
		e.wantKind(fmt.Sprintf("renew for %v", extend), err, baton.ErrInvalidTTL)
	}
	if now := e.checkHeld(e.store, a, l.Term); now.TTL != l.TTL {
		e.Errorf("refused renewals changed the TTL to %v", now.TTL)
	}
}

func validateMetadata(e *env) {
	pairs := func(n int) map[string]string {
		m := make(map[string]string)
		for i := range n {
			m[fmt.Sprintf("key-%02d", i)] = "v"
		}
		return m
	}
	for what, m := range map[string]map[string]string{
		"33 pairs":           pairs(33),
		"4 KiB and 1 byte":   {"k": strings.Repeat("v", 4096)},
		"a key beyond 4 KiB": {strings.Repeat("k", 4097): ""},
	} {
		c := candidate("node-a")
		c.Metadata = m
		_, err := e.store.Acquire(e.Context(), e.group, c, e.long)
		e.wantInvalid("acquire with metadata of "+what, err)
	}
	if l := e.get(e.store); l.Held() {
		e.Fatalf("a refused acquire made %s the leader", l.NodeID)
	}
	for _, m := range []map[string]string{pairs(32), {"k": strings.Repeat("v", 4095)}, {"quote\"": "ünï \n\t<&>"}} {
		c := candidate("node-a")
		c.Metadata = m
		l := e.grant(e.store, c, e.long)
		e.checkHeld(e.open(), c, l.Term)
		e.release(e.store, l.ID())
	}
}

func validateTerms(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	for _, term := range []baton.Term{0, baton.MaxTerm + 1, 1<<64 - 1} {
		id := l.ID()
		id.Term = term
		_, err := e.store.Renew(e.Context(), id, e.long)
		e.wantInvalid(fmt.Sprintf("renew term %d", term), err)
		e.wantInvalid(fmt.Sprintf("release term %d", term), e.store.Release(e.Context(), id))
	}
	e.checkHeld(e.store, a, l.Term)
}

func longestIDs(e *env) {
	e.group += strings.Repeat("g", 128-len(e.group))
	c := baton.Candidate{NodeID: "n:" + strings.Repeat("o", 126), InstanceID: "i._-" + randomHex(16) + strings.Repeat("i", 92)}
	l := e.grant(e.store, c, e.long)
	e.checkHeld(e.open(), c, l.Term)
	e.renew(e.store, l.ID(), e.long)
	e.release(e.store, l.ID())
}
