package httpfence_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/httpfence"
)

// A proxy sends a write again while the first copy is with the handler, and
// passes on the answer to the second. The content lands once, under the number told.
func TestSequenceThroughRepeatingProxy(t *testing.T) {
	r := start(t, httpfence.Config{})
	s, err := fence.Adopt(t.Context(), r, resource, token(5, "a"))
	if err != nil {
		t.Fatal(err)
	}
	var (
		proxy  sync.WaitGroup
		looked = make(chan struct{})
	)
	seq, err := s.Do(t.Context(), fence.Write{
		Send: func(ctx context.Context, c fence.Claim) error {
			inside := make(chan struct{})
			proxy.Go(func() {
				// A guard that answers the copy now lets its sender look too soon; with
				// a right one this waits a little.
				_ = r.Append(t.Context(), resource, c, "content", func() {
					close(inside)
					select {
					case <-looked:
					case <-time.After(200 * time.Millisecond):
					}
				})
			})
			<-inside
			return r.Append(ctx, resource, c, "content", nil)
		},
		Landed: func(ctx context.Context, c fence.Claim) (bool, error) {
			log, err := r.Log(ctx, resource)
			select {
			case <-looked:
			default:
				close(looked)
			}
			return slices.ContainsFunc(log, func(e fencetest.Entry) bool { return e.Claim == c }), err
		},
	})
	proxy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	log, err := r.Log(t.Context(), resource)
	if err != nil || len(log) != 1 || log[0].Claim != fence.Ordered(token(5, "a"), seq) {
		t.Errorf("the log is %v, %v, want the content once, under number %d", log, err, seq)
	}
}

// A copy whose client gives up on waiting for the first knows nothing of it.
func TestCopyGivesUp(t *testing.T) {
	g := httpfence.New(httpfence.Config{})
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(t, g, a)
	c := fence.Ordered(a, 1)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	nothing := func(context.Context) error {
		t.Error("let in beside the first")
		return nil
	}
	var successor sync.WaitGroup
	err := g.Write(t.Context(), resource, c, func(ctx context.Context) error {
		unknown := func(when string) {
			err := g.Write(impatient, resource, c, nothing)
			if aborted := new(fence.AbortedError); !errors.Is(err, context.Canceled) || fence.Refused(err) || errors.As(err, &aborted) {
				t.Errorf("%s: got %v, want an unknown outcome", when, err)
			}
		}
		unknown("copy of the write inside")
		successor.Go(func() {
			if _, err := g.Adopt(t.Context(), resource, b); err != nil {
				t.Errorf("adopt: %v", err)
			}
		})
		<-ctx.Done() // it is announced
		unknown("copy of the write inside, with a successor waiting")
		return nil
	})
	successor.Wait()
	if err != nil {
		t.Error(err)
	}
	if err := g.Write(t.Context(), resource, c, nothing); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late copy: got %v, want it stale", err)
	}
}
