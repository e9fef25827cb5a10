package node

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/internal/testserver"
	"baton/store/memstore"
)

func TestOptions(t *testing.T) {
	const ok = "-node-id n1 -backend baton -store http://127.0.0.1:7400 "
	for _, tt := range []struct{ args, want string }{
		{ok, ""},
		{ok + "-clock-skew=-200ms -renew-interval 1s -election-timeout 500ms -tick 10ms", ""},
		{"-backend baton", `-node-id is ""`},
		{ok + "-backend raftish", `-backend is "raftish": want one of `},
		{"-node-id n1", `-backend is "": want one of`},
		{ok + "-http 0.0.0.0:7500", "say -insecure if you mean it"},
		{ok + "-http 0.0.0.0:7500 -insecure", ""},
		{ok + "-http 7500", "want host:port"},
		{ok + "-lease-ttl 0s", "-lease-ttl is 0s"},
		{ok + "-tick=-1s", "-tick is -1s"},
		{ok + "-unsafe-trust=clock", "want receipt, or better nothing"},
		{ok + "surprise", `unexpected argument "surprise"`},
		{ok + "-fleet none.json", "no such file"},
	} {
		_, err := parse(strings.Fields(tt.args), io.Discard)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "usage: node") {
		t.Errorf("%v: %s", err, &help)
	}
}

// Leases trusted from the receipt last for longer than the store keeps them.
func TestTrustFromReceiptIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := boottime.Monotonic()
		store, err := memstore.New(memstore.Config{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		c := baton.Candidate{NodeID: "n1", InstanceID: "i1"}
		slow := trustFromReceipt(slowAnswers{store}, clock, time.Second)
		began := clock.Now()
		lease, err := slow.Acquire(t.Context(), "g", c, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"acquired", "renewed"} {
			// An elector counts from the send, and takes its margins off.
			if until := began + lease.Remaining - time.Second; until != clock.Now()+10*time.Second {
				t.Errorf("%s: trusted for %v after the receipt, want 10s", what, until-clock.Now())
			}
			began = clock.Now()
			if lease, err = slow.Renew(t.Context(), lease.ID(), 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// slowAnswers is a store whose answers take a while to arrive.
type slowAnswers struct{ baton.Store }

func (s slowAnswers) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	lease, err := s.Store.Acquire(ctx, group, c, ttl)
	time.Sleep(3 * time.Second)
	return lease, err
}

func (s slowAnswers) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	lease, err := s.Store.Renew(ctx, id, extend)
	time.Sleep(3 * time.Second)
	return lease, err
}

// An elector finds in a wrapped store what it finds in the store itself.
func TestWrappersKeepCapabilities(t *testing.T) {
	full, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	for _, tt := range []struct {
		name        string
		store       baton.Store
		line, ender bool
	}{
		{"all", full, true, true},
		{"none", struct{ baton.Store }{full}, false, false},
		{"line", struct {
			baton.Store
			baton.Line
		}{full, full}, true, false},
		{"ender", struct {
			baton.Store
			baton.Ender
		}{full, full}, false, true},
	} {
		wrapped := trustFromReceipt(watchStore(tt.store, &Node{metrics: newMetrics()}), baton.SystemClock(), 0)
		_, line := wrapped.(baton.Line)
		_, ender := wrapped.(baton.Ender)
		if line != tt.line || ender != tt.ender {
			t.Errorf("%s: line %t, ender %t", tt.name, line, ender)
		}
	}
}

// A context outlasts another by so much, and keeps what it carries.
func TestOutlast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		lost := errors.New("lost")
		for _, d := range []time.Duration{0, time.Second} {
			ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "token"))
			longer, stop := outlast(ctx, d)
			if longer.Value(key{}) != "token" {
				t.Error("it has forgotten its token")
			}
			began := time.Now()
			cancel(lost)
			<-longer.Done()
			if took := time.Since(began); took != d || !errors.Is(context.Cause(longer), lost) {
				t.Errorf("it ended %v after, with %v", took, context.Cause(longer))
			}
			stop()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		longer, stop := outlast(ctx, time.Hour)
		stop()
		if longer.Err() == nil {
			t.Error("stopped, and goes on")
		}
	})
}

// A process whose work is stuck is ended; one that was frozen and stops when it wakes is not.
func TestStuckWorkEndsTheProcess(t *testing.T) {
	for _, tt := range []struct {
		name   string
		linger time.Duration
		stops  bool
		exits  bool
	}{
		{"stuck", 0, false, true},
		{"frozen", 0, true, false},
		{"told to go on", time.Minute, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				exited := false
				n := &Node{
					opt: options{ttl: 2 * time.Second, unsafeLinger: tt.linger}, metrics: newMetrics(),
					bare: slog.New(slog.DiscardHandler), log: slog.New(slog.DiscardHandler),
					exit: func(baton.Overrun) { exited = true },
				}
				token := baton.Token{Group: "g", Term: 7, InstanceID: "i"}
				l, _ := baton.NewLeadership(baton.LeadershipConfig{Token: token, Clock: boottime.Monotonic()})
				n.led = l
				n.begin(l, newSequencer(7, nil))
				n.overran(baton.Overrun{Token: token, Cause: baton.ErrLapsed})
				if tt.stops {
					n.end(l)
				}
				time.Sleep(moments + time.Millisecond)
				synctest.Wait()
				if exited != tt.exits {
					t.Errorf("exited: %t, want %t", exited, tt.exits)
				}
			})
		})
	}
}

func TestTally(t *testing.T) {
	var tally nextTally
	if s := tally.reset(); s != nil {
		t.Errorf("of nothing: %+v", s)
	}
	for i := range 100 {
		tally.answered(time.Duration(100 - i))
	}
	tally.lost()
	if s := tally.reset(); s == nil || s.Answered != 100 || s.Failed != 1 || s.P50NS != 50 || s.P99NS != 99 || s.MaxNS != 100 {
		t.Errorf("%+v", s)
	}
	if s := tally.reset(); s != nil {
		t.Errorf("twice: %+v", s)
	}
}

// Every store that this program has can be the backend of a fleet, and only by a URL of its own.
func TestEveryStoreIsABackend(t *testing.T) {
	for _, kind := range baton.StoreKinds() {
		open, err := findBackend(kind.Name)
		if err != nil || open == nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
		if kind.Name == "baton" {
			continue
		}
		_, err = openKind(kind.Name)(t.Context(), options{store: "nosuch://ann:secret@h"})
		if !errors.Is(err, baton.ErrInvalidArgument) || !strings.Contains(err.Error(), kind.Form) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s by another's URL: %v; want how its own look", kind.Name, err)
		}
	}
	store, err := openKind("redis")(t.Context(), options{store: testserver.Shared(t, testserver.Redis).URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
