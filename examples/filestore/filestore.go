//go:build unix

// Package filestore keeps leases in a directory, for processes of one machine.
// It is the smallest store there can be that keeps its word: the five requests,
// a watch, and no optional part. docs/adding-a-store.md walks through it.
package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"baton"
)

// Store is a baton.Store.
type Store struct {
	dir  string
	life context.Context // ends with Close
	end  context.CancelFunc
}

var _ baton.Store = (*Store)(nil)

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name: "file", Schemes: []string{"file"}, Form: "file:///directory", Guarantees: guarantees,
		Open: func(_ context.Context, url string) (baton.Store, error) {
			s, err := Open(strings.TrimPrefix(url, "file://"))
			if err != nil {
				return nil, err // and no *Store that is nil
			}
			return s, nil
		},
	})
}

var guarantees = baton.Guarantees{
	Store:        "file",
	MinTTL:       100 * time.Millisecond,
	MaxTTL:       baton.MaxTTL,
	TTLStep:      time.Millisecond,
	Time:         baton.TimeWall,
	DurableTerms: true,
	Waiting:      baton.WaitWatch,
	Caveats:      []string{"the wall clock judges: a step forward ends leases early", "a network file system may not keep locks"},
}

// Guarantees says what a directory can promise.
func (s *Store) Guarantees() baton.Guarantees { return guarantees }

// Open makes a store of a directory.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open file store: %w", err)
	}
	s := &Store{dir: dir}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close refuses what comes later.
func (s *Store) Close() error {
	s.end()
	return nil
}

// record is the state of a group.
type record struct {
	Term   baton.Term       // the last one
	Holder *baton.Candidate // nil if the group is vacant
	TTL    time.Duration    // of the holder's lease
	Until  time.Time        // when that ends
	Last   *baton.Candidate // whose leadership ended last
	Reason baton.Reason     // why
}

// change is one request: it locks the group, reads its record, lets decide
// change it, and has it on disk before it answers.
func (s *Store) change(ctx context.Context, op, group string, decide func(r *record, now time.Time) error) (*record, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return nil, err
	}
	unlock, err := s.lock(ctx, group)
	if err != nil {
		return nil, s.fail(ctx, op, err)
	}
	defer unlock()
	r, err := s.read(group)
	if err != nil {
		return nil, s.fail(ctx, op, err)
	}
	now := time.Now()
	if r.Holder != nil && !now.Before(r.Until) {
		r.over(baton.Expired) // for good, whatever the clock does later
	}
	refused := decide(r, now)
	if err := s.write(group, r); err != nil {
		return nil, s.fail(ctx, op, err)
	}
	return r, refused
}

func (r *record) over(why baton.Reason) {
	r.Last, r.Holder, r.Reason = r.Holder, nil, why
}

func (r *record) lease(group string, now time.Time) baton.Lease {
	l := baton.Lease{Group: group, Term: r.Term}
	if h := r.Holder; h != nil {
		l.NodeID, l.InstanceID, l.Metadata = h.NodeID, h.InstanceID, h.Metadata
		l.TTL, l.Remaining = r.TTL, r.Until.Sub(now)
	}
	return l
}

// Acquire grants a vacant group.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (l baton.Lease, err error) {
	if err := c.Validate(); err != nil {
		return l, err
	}
	if err := guarantees.ValidateTTL(ttl); err != nil {
		return l, err
	}
	_, err = s.change(ctx, "acquire", group, func(r *record, now time.Time) error {
		switch {
		case r.lease(group, now).HeldBy(c): // its answer was lost, perhaps
			r.Until = later(r.Until, now.Add(min(ttl, r.TTL)))
		case r.Last != nil && r.Last.NodeID == c.NodeID && r.Last.InstanceID == c.InstanceID:
			return &baton.ConflictError{Reason: baton.ConflictInstanceEnded}
		case r.Holder != nil:
			return &baton.HeldError{Lease: r.lease(group, now), RetryAfter: r.Until.Sub(now)}
		case r.Term >= baton.MaxTerm:
			return &baton.ConflictError{Reason: baton.ConflictTermsExhausted}
		default:
			ttl = (ttl + guarantees.TTLStep - 1).Truncate(guarantees.TTLStep)
			r.Term, r.Holder, r.TTL, r.Until = r.Term+1, &c, ttl, now.Add(ttl)
		}
		l = r.lease(group, now)
		return nil
	})
	return l, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Renew extends exactly this leadership.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (l baton.Lease, err error) {
	if err := id.Validate(); err != nil {
		return l, err
	}
	if err := guarantees.ValidateExtend(extend); err != nil {
		return l, err
	}
	_, err = s.change(ctx, "renew", id.Group, func(r *record, now time.Time) error {
		if err := r.mustLead(id, now); err != nil {
			return err
		}
		if extend > r.TTL {
			return &baton.InvalidTTLError{Field: "extend", TTL: extend, Min: time.Millisecond, Max: r.TTL}
		}
		r.Until = later(r.Until, now.Add(extend))
		l = r.lease(id.Group, now)
		return nil
	})
	return l, err
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	_, err := s.change(ctx, "release", id.Group, func(r *record, now time.Time) error {
		if err := r.mustLead(id, now); err != nil {
			return err
		}
		r.over(baton.Resigned)
		return nil
	})
	return err
}

// mustLead refuses a leadership that is not the present one, to the letter.
func (r *record) mustLead(id baton.LeaseID, now time.Time) error {
	l := r.lease(id.Group, now)
	if l.Held() && l.ID() == id {
		return nil
	}
	return &baton.NotLeaderError{ID: id, Current: &l}
}

// Get reads the group.
func (s *Store) Get(ctx context.Context, group string) (l baton.Lease, err error) {
	_, err = s.change(ctx, "get", group, func(r *record, now time.Time) error {
		l = r.lease(group, now)
		return nil
	})
	return l, err
}

// Watch looks ten times a second. What came and went between two looks is a gap.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		told, known := s.parse(group, after)
		first := true
		for {
			r, err := s.change(ctx, "watch", group, func(*record, time.Time) error { return nil })
			if err != nil {
				yield(baton.Event{}, err)
				return
			}
			if step := r.step(); first && !known || step != told {
				ev := r.event(group)
				ev.Gap = first && !known && after != "" || known && step != told+1
				ev.Cursor = s.cursor(group, step)
				if !yield(ev, nil) {
					return
				}
				told, known = step, true
			}
			first = false
			select {
			case <-tick.C:
			case <-ctx.Done():
			case <-s.life.Done():
			}
		}
	}
}

// step numbers the changes of a group: every term begins and ends once.
func (r *record) step() uint64 {
	if r.Holder != nil {
		return 2*uint64(r.Term) - 1
	}
	return 2 * uint64(r.Term)
}

func (s *Store) cursor(group string, step uint64) baton.Cursor {
	return baton.Cursor(fmt.Sprintf("%s %s %d", s.dir, group, step))
}

func (s *Store) parse(group string, c baton.Cursor) (step uint64, ok bool) {
	n, err := fmt.Sscanf(string(c), s.dir+" "+group+" %d", &step)
	return step, n == 1 && err == nil
}

func (r *record) event(group string) baton.Event {
	ev := baton.Event{Type: baton.LeaderLost, Group: group, Term: r.Term, Time: time.Now()}
	switch {
	case r.Holder != nil:
		ev.Type, ev.NodeID, ev.InstanceID, ev.Metadata = baton.LeaderChanged, r.Holder.NodeID, r.Holder.InstanceID, r.Holder.Metadata
	case r.Last != nil:
		ev.PreviousNodeID, ev.Reason = r.Last.NodeID, r.Reason
	}
	return ev
}

// timeout bounds every request.
const timeout = 5 * time.Second

// lock waits for its turn with the group; the lock of a process that dies goes with it.
func (s *Store) lock(ctx context.Context, group string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, group+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	late := time.After(timeout)
	for {
		if err = errors.Join(ctx.Err(), s.life.Err()); err == nil {
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			return nil, errors.Join(err, f.Close())
		}
	}
}

func (s *Store) read(group string) (*record, error) {
	var r record
	text, err := os.ReadFile(filepath.Join(s.dir, group+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return &r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return &r, err
}

// write replaces the record at once, and returns when it is on disk.
func (s *Store) write(group string, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, group+".json")
	if old, err := os.ReadFile(path); err == nil && string(old) == string(text) {
		return nil
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // the name, too
}

// fail says that nobody knows what became of a request.
func (s *Store) fail(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil && s.life.Err() == nil {
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	return &baton.UnavailableError{Op: op, Err: err}
}
