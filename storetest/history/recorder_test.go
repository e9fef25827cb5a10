package history_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/store/memstore"
	"baton/storetest/history"
)

// TestRecorder sends one request of each kind and reads them back.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := memstore.New(memstore.Config{Clock: boottime.Monotonic()})
		if err != nil {
			t.Fatal(err)
		}
		log := history.NewLog(boottime.Monotonic())
		s := log.Record("client", inner)
		ctx := t.Context()
		time.Sleep(time.Second) // fake
		l, err := s.Acquire(ctx, "g", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Renew(ctx, l.ID(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Get(ctx, "g"); err != nil {
			t.Fatal(err)
		}
		if err = s.(baton.Ender).End(ctx, "g", l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true}); err != nil {
			t.Fatal(err)
		}
		if err = s.Release(ctx, l.ID()); !errors.Is(err, baton.ErrNotLeader) {
			t.Fatalf("release after the end: %v", err)
		}
		if err = s.Close(); err != nil {
			t.Fatal(err)
		}
		ops := log.Ops()
		var kinds []history.Kind
		for i, op := range ops {
			kinds = append(kinds, op.Kind)
			if op.Client != "client" || op.Group != "g" || op.Call != time.Second || op.Return != time.Second {
				t.Errorf("recorded %+v", op)
			}
			if op.Began != int64(2*i+1) || op.Ended != int64(2*i+2) {
				t.Errorf("request %d has order %d to %d", i, op.Began, op.Ended)
			}
		}
		want := []history.Kind{history.Acquire, history.Renew, history.Get, history.End, history.Release}
		if len(kinds) != len(want) {
			t.Fatalf("recorded %v: want %v", kinds, want)
		}
		for i := range want {
			if kinds[i] != want[i] {
				t.Fatalf("recorded %v: want %v", kinds, want)
			}
		}
		if r := history.Check(ops, history.Options{}); r.Verdict != history.OK {
			t.Errorf("verdict %s: %s", r.Verdict, r.Detail)
		}
	})
}

// TestRecorderHasNoMore wraps a store without capabilities.
func TestRecorderHasNoMore(t *testing.T) {
	inner, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := history.NewLog(nil).Record("client", struct{ baton.Store }{inner})
	if _, ok := s.(baton.Ender); ok {
		t.Errorf("the recorder of a store that is no Ender is one")
	}
	if _, err := s.Get(t.Context(), "g"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
