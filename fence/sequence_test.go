package fence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/fence"
	"baton/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var errLost = errors.New("connection lost")

// down is a ledger that cannot be reached for a while.
type down struct {
	*fence.Memory
	until  time.Time
	asked  int
	forged error // an answer of Advance in place of its own
}

func (d *down) Advance(ctx context.Context, resource string, c fence.Claim) error {
	d.asked++
	if d.forged != nil {
		return d.forged
	}
	if time.Now().Before(d.until) {
		return errLost
	}
	return d.Memory.Advance(ctx, resource, c)
}

func mustSequence(t *testing.T, l fence.Ledger) *fence.Sequence {
	t.Helper()
	s, err := fence.Adopt(t.Context(), l, "log", tok)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func noEffect(context.Context) error { return nil }

// TestSequenceWaitsForTheLedger: the write is lost and the ledger is away for a
// minute; then the content is sent again, above all that was sent.
func TestSequenceWaitsForTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(fence.Memory)
		ledger := &down{Memory: memory, until: time.Now().Add(time.Minute)}
		s := mustSequence(t, ledger)
		var sent []int64
		n, err := s.Do(t.Context(), fence.Write{
			Landed: fence.Resend,
			Send: func(ctx context.Context, c fence.Claim) error {
				seq, _ := c.Seq()
				sent = append(sent, seq)
				if len(sent) == 1 {
					return errLost
				}
				return memory.Write(ctx, "log", c, noEffect)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if ledger.asked > 100 {
			t.Errorf("the ledger was asked %d times in a minute", ledger.asked)
		}
		if want := int64(2 + ledger.asked); n != want || len(sent) != 2 || sent[0] != 1 || sent[1] != want {
			t.Errorf("sent %v, landed as %d, want 1 and then %d", sent, n, want)
		}
	})
}

// TestSequenceGivesUpWithItsContext: the outcome stays unknown, and the next
// write settles it before it sends anything.
func TestSequenceGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(fence.Memory)
		ledger := &down{Memory: memory, until: time.Now().Add(time.Minute)}
		s := mustSequence(t, ledger)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Do(ctx, fence.Write{
			Landed: fence.Resend,
			Send:   func(context.Context, fence.Claim) error { return errLost },
		})
		var unknown *fence.UnknownError
		if !errors.As(err, &unknown) || unknown.Settled || unknown.Offered != fence.Ordered(tok, 1) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want number 1 unknown", err)
		}
		if fence.Refused(err) {
			t.Errorf("an unknown outcome counts as refused")
		}
		time.Sleep(2 * time.Minute)
		settled := false
		n, err := s.Do(t.Context(), fence.Write{
			Landed: fence.Resend,
			Send: func(ctx context.Context, c fence.Claim) error {
				r, err := memory.Read(ctx, "log")
				settled = err == nil && r.LastSeq >= 1
				return memory.Write(ctx, "log", c, noEffect)
			},
		})
		if err != nil || !settled || n <= 1 {
			t.Errorf("got %d, %v, settled before the next was sent: %v", n, err, settled)
		}
	})
}

func TestSequenceErrors(t *testing.T) {
	later := baton.Token{Group: "payments", Term: 8, InstanceID: "b"}
	boom := errors.New("boom")
	var cancel context.CancelCauseFunc // of the case that runs
	for _, tt := range []struct {
		name   string
		send   func(ctx context.Context, m *fence.Memory, c fence.Claim) error
		landed func(context.Context, fence.Claim) (bool, error)
		forged error
		check  func(err error) bool
	}{
		{"refused as stale", func(ctx context.Context, m *fence.Memory, c fence.Claim) error {
			if _, err := m.Adopt(ctx, "log", later); err != nil {
				return err
			}
			return m.Write(ctx, "log", c, noEffect)
		}, nil, nil, func(err error) bool { return errors.Is(err, fence.ErrStale) && fence.Refused(err) }},
		{"aborted", func(context.Context, *fence.Memory, fence.Claim) error {
			return &fence.AbortedError{Err: boom}
		}, nil, nil, func(err error) bool { return errors.Is(err, boom) && !errors.Is(err, fence.ErrUnknown) }},
		{"unknown, and stale by then", func(ctx context.Context, m *fence.Memory, _ fence.Claim) error {
			if _, err := m.Adopt(ctx, "log", later); err != nil {
				return err
			}
			return errLost
		}, nil, nil, func(err error) bool {
			var unknown *fence.UnknownError
			return errors.As(err, &unknown) && unknown.Settled && errors.Is(err, fence.ErrStale) && !fence.Refused(err)
		}},
		{"unknown, and the reading fails", func(context.Context, *fence.Memory, fence.Claim) error { return errLost },
			func(context.Context, fence.Claim) (bool, error) { return false, boom }, nil, func(err error) bool {
				var unknown *fence.UnknownError
				return errors.As(err, &unknown) && unknown.Settled && errors.Is(err, boom)
			}},
		{"unknown, and not adopted any more", func(context.Context, *fence.Memory, fence.Claim) error { return errLost },
			nil, &fence.NotAdoptedError{}, func(err error) bool {
				var unknown *fence.UnknownError
				return errors.As(err, &unknown) && !unknown.Settled && errors.Is(err, fence.ErrNotAdopted)
			}},
		{"unknown, and the attempt to settle it aborted", func(_ context.Context, _ *fence.Memory, _ fence.Claim) error {
			cancel(errLost)
			return errLost
		}, nil, &fence.AbortedError{Err: boom}, func(err error) bool {
			var aborted *fence.AbortedError
			return errors.Is(err, fence.ErrUnknown) && errors.Is(err, boom) && !errors.As(err, &aborted)
		}},
		{"unknown, and the reading aborted", func(context.Context, *fence.Memory, fence.Claim) error { return errLost },
			func(context.Context, fence.Claim) (bool, error) { return false, &fence.AbortedError{Err: boom} }, nil, func(err error) bool {
				var aborted *fence.AbortedError
				return errors.Is(err, fence.ErrUnknown) && errors.Is(err, boom) && !errors.As(err, &aborted)
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			memory := new(fence.Memory)
			s := mustSequence(t, &down{Memory: memory, forged: tt.forged})
			landed := tt.landed
			if landed == nil {
				landed = fence.Resend
			}
			var ctx context.Context
			ctx, cancel = context.WithCancelCause(t.Context())
			defer cancel(nil)
			n, err := s.Do(ctx, fence.Write{
				Send:   func(ctx context.Context, c fence.Claim) error { return tt.send(ctx, memory, c) },
				Landed: landed,
			})
			if n != 0 || !tt.check(err) {
				t.Errorf("got %d, %v", n, err)
			}
		})
	}
}

// TestSequenceCount: a write may take many numbers, and many writers one
// sequence; no number is given twice.
func TestSequenceCount(t *testing.T) {
	memory := new(fence.Memory)
	s := mustSequence(t, memory)
	var (
		callers sync.WaitGroup
		mu      sync.Mutex
		given   = map[int64]bool{}
	)
	for i := range 50 {
		count := int64(1 + i%7)
		callers.Go(func() {
			last, err := s.Do(t.Context(), fence.Write{
				Count:  count,
				Landed: fence.Resend,
				Send:   func(ctx context.Context, c fence.Claim) error { return memory.Write(ctx, "log", c, noEffect) },
			})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for n := last - count + 1; n <= last; n++ {
				if given[n] {
					t.Errorf("number %d was given twice", n)
				}
				given[n] = true
			}
		})
	}
	callers.Wait()
	for _, count := range []int64{-1, fence.MaxSeq + 1, fence.MaxSeq} {
		_, err := s.Do(t.Context(), fence.Write{Count: count, Landed: fence.Resend, Send: func(context.Context, fence.Claim) error {
			t.Errorf("sent with count %d", count)
			return nil
		}})
		if !errors.Is(err, baton.ErrInvalidArgument) {
			t.Errorf("count %d: got %v, want it refused", count, err)
		}
	}
}

// TestMemoryWaitsWithItsContext: whoever waits for a write under way can give
// up, and leaves no trace in the queue.
func TestMemoryWaitsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(fence.Memory)
		mustSequence(t, memory)
		inside, finish := make(chan struct{}), make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			if err := memory.Write(t.Context(), "log", fence.Unordered(tok), func(context.Context) error {
				close(inside)
				<-finish
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		<-inside
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		later := tok
		later.Term++
		if _, err := memory.Adopt(impatient, "log", later); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("adopt: got %v, want it to give up", err)
		}
		// With the one that waited gone, writers share again.
		if err := memory.Write(t.Context(), "log", fence.Unordered(tok), noEffect); err != nil {
			t.Error(err)
		}
		close(finish)
		writer.Wait()
		if _, err := memory.Adopt(t.Context(), "log", later); err != nil {
			t.Error(err)
		}
	})
}

func TestTokenFrom(t *testing.T) {
	if _, err := fence.TokenFrom(t.Context()); !errors.Is(err, baton.ErrInvalidArgument) {
		t.Errorf("a context without a token: got %v", err)
	}
	clock := baton.SystemClock()
	l, tenure := baton.NewLeadership(baton.LeadershipConfig{Token: tok, Clock: clock, Until: clock.Now() + time.Hour})
	defer tenure.End(baton.ErrResigned)
	if got, err := fence.TokenFrom(l.Context()); err != nil || got != tok {
		t.Errorf("got %v, %v, want the leadership's", got, err)
	}
	other := baton.Token{Group: "payments", Term: 9, InstanceID: "client"}
	if got, err := fence.TokenFrom(fence.WithToken(l.Context(), other)); err != nil || got != other {
		t.Errorf("got %v, %v, want the one that was handed on", got, err)
	}
}

// TestSequenceCopyRefused: a proxy sends the write again, and passes on how the
// copy was refused. That says nothing about the first, so the sequence looks: with
// a context that outlives the leadership, which the refusal has ended.
func TestSequenceCopyRefused(t *testing.T) {
	later := baton.Token{Group: "payments", Term: 8, InstanceID: "b"}
	stale := func(ctx context.Context, m *fence.Memory, c fence.Claim) error {
		if _, err := m.Adopt(ctx, "log", later); err != nil {
			return err
		}
		return m.Write(ctx, "log", c, noEffect)
	}
	notAdopted := func(ctx context.Context, _ *fence.Memory, c fence.Claim) error {
		return new(fence.Memory).Write(ctx, "log", c, noEffect) // it was restarted, and has forgotten
	}
	wrongGroup := func(ctx context.Context, _ *fence.Memory, c fence.Claim) error {
		m := new(fence.Memory)
		if _, err := m.Adopt(ctx, "log", baton.Token{Group: "other", Term: 1, InstanceID: "x"}); err != nil {
			return err
		}
		return m.Write(ctx, "log", c, noEffect)
	}
	boom := errors.New("boom")
	never := func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }
	for _, tt := range []struct {
		name    string
		again   func(ctx context.Context, m *fence.Memory, c fence.Claim) error
		lost    bool // the first copy
		look    func(ctx context.Context) (bool, error)
		landed  bool
		kind    error
		unknown error // why, if it is
	}{
		{"stale, the first landed", stale, false, nil, true, nil, nil},
		{"stale, the first did not", stale, true, nil, false, fence.ErrStale, nil},
		{"stale, and nobody knows", stale, false, func(context.Context) (bool, error) { return false, boom }, false, fence.ErrStale, boom},
		{"stale, and reading takes forever", stale, false, never, false, fence.ErrStale, context.DeadlineExceeded},
		{"not adopted, the first landed", notAdopted, false, nil, true, nil, nil},
		{"not adopted, the first did not", notAdopted, true, nil, false, fence.ErrNotAdopted, nil},
		{"not adopted, and nobody knows", notAdopted, false, func(context.Context) (bool, error) { return false, boom }, false, fence.ErrNotAdopted, boom},
		{"wrong group, the first landed", wrongGroup, false, nil, true, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := baton.SystemClock()
				l, tenure := baton.NewLeadership(baton.LeadershipConfig{Token: tok, Clock: clock, Until: clock.Now() + time.Hour})
				defer tenure.End(baton.ErrResigned)
				memory, landed := new(fence.Memory), false
				s := mustSequence(t, memory)
				n, err := s.Do(l.Context(), fence.Write{
					Send: func(ctx context.Context, c fence.Claim) error {
						if !tt.lost {
							if err := memory.Write(ctx, "log", c, func(context.Context) error { landed = true; return nil }); err != nil {
								return err
							}
						}
						return tt.again(ctx, memory, c)
					},
					Landed: func(ctx context.Context, _ fence.Claim) (bool, error) {
						if ctx.Err() != nil {
							t.Errorf("asked to look when it is too late: %v", ctx.Err())
						}
						if tt.look != nil {
							return tt.look(ctx)
						}
						return landed, nil
					},
				})
				if tt.landed {
					if n != 1 || err != nil {
						t.Errorf("got %d, %v, want number 1", n, err)
					}
					return
				}
				if n != 0 || !errors.Is(err, tt.kind) || fence.Refused(err) != (tt.unknown == nil) {
					t.Errorf("got %d, %v, want %v, refused: %v", n, err, tt.kind, tt.unknown == nil)
				}
				unknown := new(fence.UnknownError)
				if tt.unknown != nil && (!errors.As(err, &unknown) || !errors.Is(err, tt.unknown) || unknown.Settled != (tt.kind == fence.ErrStale)) {
					t.Errorf("got %v, want the outcome unknown because of %v", err, tt.unknown)
				}
			})
		})
	}
}
