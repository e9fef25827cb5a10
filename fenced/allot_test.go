package fenced

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/fence"
	"baton/fenced/fencedclient"
)

// held is a ledger whose writes wait for release, and have no effect: where
// one takes several numbers, only the first is recorded.
type held struct {
	fence.Memory
	release chan error

	mu     sync.Mutex
	writes []fence.Claim
}

func (h *held) Write(ctx context.Context, resource string, c fence.Claim, _ effect) error {
	if err := <-h.release; err != nil {
		return err
	}
	h.mu.Lock()
	h.writes = append(h.writes, c)
	h.mu.Unlock()
	return h.Memory.Write(ctx, resource, c, func(context.Context) error { return nil })
}

type asked struct {
	numbers fencedclient.Numbers
	err     error
}

// Those that come while a commit is under way share the next one.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{release: make(chan error)}
		s := &Store{ledger: h, allot: allotter{within: time.Hour}}
		a, old := baton.Token{Group: "g", Term: 2, InstanceID: "a"}, baton.Token{Group: "g", Term: 1, InstanceID: "z"}
		if _, err := h.Adopt(t.Context(), "ids", a); err != nil {
			t.Fatal(err)
		}
		answers := make(chan asked, 100)
		ask := func(ctx context.Context, tok baton.Token, count int64) {
			go func() {
				n, _, err := s.Numbers(ctx, "ids", fence.Unordered(tok), count)
				answers <- asked{n, err}
			}()
			synctest.Wait()
		}
		ask(t.Context(), a, 5) // commits alone
		for range 10 {
			ask(t.Context(), a, 2) // wait together
		}
		impatient, cancel := context.WithCancel(t.Context())
		ask(impatient, a, 1000)
		ask(t.Context(), old, 7)
		cancel()
		synctest.Wait()
		if got := <-answers; !errors.Is(got.err, context.Canceled) {
			t.Errorf("the one that went away: got %+v", got)
		}

		h.release <- nil
		if got := <-answers; got.err != nil || got.numbers != (fencedclient.Numbers{First: 1, Last: 5}) {
			t.Errorf("the first: got %+v, want 1 to 5", got)
		}
		h.release <- nil
		h.release <- nil
		given := map[int64]bool{}
		for range 11 {
			got := <-answers
			switch {
			case errors.Is(got.err, fence.ErrStale):
			case got.err != nil || got.numbers.Last != got.numbers.First+1 || given[got.numbers.First]:
				t.Errorf("one of many: got %+v", got)
			default:
				given[got.numbers.First] = true
			}
		}
		if len(given) != 10 {
			t.Errorf("%d callers got numbers, want 10", len(given))
		}
		want := []fence.Claim{fence.Ordered(a, 1), fence.Ordered(a, 6), fence.Ordered(old, 26)}
		for i, c := range h.writes {
			if i >= len(want) || c != want[i] {
				t.Errorf("transactions were %v, want %v", h.writes, want)
				break
			}
		}

		// A commit that failed fails for all that shared it, and for nobody else.
		lost := errors.New("lost")
		ask(t.Context(), a, 1)
		ask(t.Context(), a, 1)
		ask(t.Context(), a, 1)
		h.release <- lost
		h.release <- nil
		failed := 0
		for range 3 {
			if got := <-answers; errors.Is(got.err, lost) {
				failed++
			} else if got.err != nil {
				t.Errorf("got %v", got.err)
			}
		}
		if failed != 1 {
			t.Errorf("%d callers were told of the failure, want the one that committed alone", failed)
		}
		if len(s.allot.queues) != 0 {
			t.Errorf("%d queues are left behind", len(s.allot.queues))
		}
	})
}
