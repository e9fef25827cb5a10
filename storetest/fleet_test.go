package storetest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/store/memstore"
	"baton/storetest/history"
)

// A fleet is content with a good store, and sees one that grants while another's promise stands.
func TestFleetJudges(t *testing.T) {
	for name, tt := range map[string]struct {
		alter func(s *memstore.Store) baton.Store
		want  string
		judge history.Options
	}{
		"good": {alter: func(s *memstore.Store) baton.Store { return s }},
		"good, with copies": {alter: func(s *memstore.Store) baton.Store {
			return &altered{Store: s, release: func(ctx context.Context, id baton.LeaseID) error {
				_ = s.Release(ctx, id)
				return s.Release(ctx, id) // refused for what the first has done
			}}
		}, judge: history.Options{Duplicates: true}},
		"gives a lease back on the echo of its grant": {alter: func(s *memstore.Store) baton.Store {
			return &altered{Store: s, acquire: func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
				l, err := s.Acquire(ctx, group, c, ttl)
				if err == nil && l.Term%5 == 0 {
					_ = s.End(ctx, group, l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true})
				}
				return l, err
			}}
		}, want: "illegal", judge: history.Options{Duplicates: true}},
		"grants too early": {alter: func(s *memstore.Store) baton.Store {
			return &altered{Store: s, acquire: func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
				l, err := s.Acquire(ctx, group, c, ttl)
				var held *baton.HeldError
				if !errors.As(err, &held) || held.Lease.Remaining > ttl*99/100 {
					return l, err
				}
				_ = s.End(ctx, group, held.Lease.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true})
				return s.Acquire(ctx, group, c, ttl)
			}}
		}, want: "illegal"},
	} {
		failed, said := verdict(t, func(t T) {
			inner := newMemory(t)
			t.Cleanup(func() { _ = inner.Close() })
			store := tt.alter(inner)
			f := StartFleet(t, FleetConfig{Open: func() baton.Store { return store }, Clock: boottime.Monotonic()})
			f.More("grants", 20)
			f.Judge(tt.judge)
		})
		if failed != (tt.want != "") || !strings.Contains(said, tt.want) {
			t.Errorf("%s: failed is %t: %s", name, failed, said)
		}
	}
}

// away is a store whose server can be away.
type away struct {
	baton.Store
	gone, back chan struct{}
}

func (s *away) is() error {
	select {
	case <-s.back:
		return nil
	default:
	}
	select {
	case <-s.gone:
		return &baton.UnavailableError{Op: "ask"}
	default:
		return nil
	}
}

func (s *away) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := s.is(); err != nil {
		return baton.Lease{}, err
	}
	return s.Store.Acquire(ctx, group, c, ttl)
}

func (s *away) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := s.is(); err != nil {
		return baton.Lease{}, err
	}
	return s.Store.Renew(ctx, id, extend)
}

func (s *away) Release(ctx context.Context, id baton.LeaseID) error {
	return errors.Join(s.is(), s.Store.Release(ctx, id))
}

func (s *away) Get(ctx context.Context, group string) (baton.Lease, error) {
	l, err := s.Store.Get(ctx, group)
	return l, errors.Join(s.is(), err)
}

func (s *away) Watch(context.Context, string, baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		if yield(baton.Event{}, nil) {
			<-s.gone
			yield(baton.Event{}, &baton.UnavailableError{Op: "watch"})
		}
	}
}

// An outage is one only if everybody is told so, and what was acknowledged before it stands.
func TestOutageIsChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		hurt func(s *away)
		want string
	}{
		"all are told":      {func(s *away) { close(s.gone) }, ""},
		"some are answered": {func(s *away) { close(s.back); close(s.gone) }, "want ErrUnavailable"},
		"the lease is lost": {func(s *away) {
			close(s.gone)
			s.Store = &altered{Store: s.Store.(*memstore.Store), renew: func(_ context.Context, id baton.LeaseID, _ time.Duration) (baton.Lease, error) {
				return baton.Lease{}, &baton.NotLeaderError{ID: id}
			}}
		}, "renew after the outage"},
	} {
		failed, said := verdict(t, func(t T) {
			inner := newMemory(t)
			t.Cleanup(func() { _ = inner.Close() })
			s := &away{Store: inner, gone: make(chan struct{}), back: make(chan struct{})}
			o := BeforeOutage(t, s)
			tt.hurt(s)
			o.During()
			select {
			case <-s.back:
			default:
				close(s.back)
			}
			o.After()
		})
		if failed != (tt.want != "") || !strings.Contains(said, tt.want) {
			t.Errorf("%s: failed is %t: %s", name, failed, said)
		}
	}
}
