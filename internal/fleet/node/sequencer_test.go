package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton/fence"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
)

func goOn() error { return nil }

func never(error) bool { return false }

// Requests that come while a write is under way share the next one, and each
// gets a number of its own.
func TestNumbersAreCommittedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []int64
		last := int64(100)
		s := newSequencer(7, func(count int64) (fencedclient.Numbers, error) {
			time.Sleep(time.Second)
			writes = append(writes, count)
			first := last + 1
			last += count
			return fencedclient.Numbers{First: first, Last: last}, nil
		})
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.run(done, goOn, never); err != nil {
				t.Error(err)
			}
		})
		var mu sync.Mutex
		var got []int64
		ask := func() {
			seq, err := s.next(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, seq)
		}
		var customers sync.WaitGroup
		customers.Go(ask)
		synctest.Wait() // the first write is under way
		for range 10 {
			customers.Go(ask)
		}
		customers.Wait()
		close(done)
		wg.Wait()
		slices.Sort(got)
		if want := []int64{101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111}; !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		if !slices.Equal(writes, []int64{1, 10}) {
			t.Errorf("writes of %v numbers", writes)
		}
		if _, err := s.next(t.Context()); !errors.Is(err, errStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// Whoever waits when the leadership ends is sent away without a number, and so
// is whoever's write failed.
func TestNoNumberWithoutACommit(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		name     string
		commit   error
		fatal    bool
		mayWrite error
		then     error // what requests that come later get
	}{
		{"the write fails", failed, false, nil, failed},
		{"the write is refused", failed, true, nil, errStopped},
		{"the lease is over", nil, false, context.Canceled, errStopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writes := 0
				s := newSequencer(7, func(int64) (fencedclient.Numbers, error) {
					writes++
					return fencedclient.Numbers{First: 1, Last: 1}, tt.commit
				})
				done := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					err := s.run(done, func() error { return tt.mayWrite }, func(error) bool { return tt.fatal })
					if (err != nil) != tt.fatal {
						t.Errorf("it ended with %v", err)
					}
				})
				for _, want := range []error{tt.commit, tt.then} {
					if want == nil {
						want = errStopped
					}
					if seq, err := s.next(t.Context()); seq != 0 || !errors.Is(err, want) {
						t.Errorf("got %d, %v, want %v", seq, err, want)
					}
					synctest.Wait()
				}
				if tt.mayWrite != nil && writes > 0 {
					t.Errorf("%d writes without a lease", writes)
				}
				close(done)
				wg.Wait()
			})
		})
	}
}

// The end sends away all that wait.
func TestEndSendsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequencer(7, func(int64) (fencedclient.Numbers, error) { panic("written") })
		var customers sync.WaitGroup
		for range 5 {
			customers.Go(func() {
				if _, err := s.next(t.Context()); !errors.Is(err, errStopped) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		s.close()
		customers.Wait()
	})
}

// Nobody waits for longer than they want to. For whom no write has begun, none
// is made; what a write that is under way does for the others is unknown.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []int64
		s := newSequencer(7, func(count int64) (fencedclient.Numbers, error) {
			time.Sleep(time.Minute)
			writes = append(writes, count)
			return fencedclient.Numbers{First: 1, Last: count}, nil
		})
		ask := func(unknown bool) {
			began := time.Now()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errLate)
			defer cancel()
			seq, err := s.next(ctx)
			if seq != 0 || !errors.Is(err, errLate) || errors.Is(err, fence.ErrUnknown) != unknown || time.Since(began) != 5*time.Second {
				t.Errorf("after %v: %d, %v; want it unknown: %t", time.Since(began), seq, err, unknown)
			}
			want := fleet.CodeUnavailable
			if unknown {
				want = fleet.CodeUnknown
			}
			if r := noNumber(err); r.Code != want {
				t.Errorf("%+v", r)
			}
		}
		ask(false) // nobody writes yet
		done := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.run(done, goOn, never); err != nil {
				t.Error(err)
			}
		})
		ask(true)  // the write has begun
		ask(false) // and lasts
		close(done)
		running.Wait()
		if !slices.Equal(writes, []int64{1}) {
			t.Errorf("writes of %v numbers", writes)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	s := newSequencer(7, nil)
	for range maxWaiting {
		if err := s.enter(make(chan allotted)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.enter(make(chan allotted)); !errors.Is(err, errOverloaded) {
		t.Errorf("%v", err)
	}
}
