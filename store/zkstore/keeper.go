package zkstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"baton"
	"baton/internal/observed"
)

// lookEvery is how often one who waits looks whether something escaped it, and
// whether ZooKeeper is there at all.
const lookEvery = 5 * time.Second

var errDismissed = errors.New("the place is no longer wanted")

// keepers hold the places in line of this process. A place has one keeper,
// which stays while its candidate is away between two polls.
type keepers struct {
	mu     sync.Mutex
	places map[waiting]*keeper
	closed bool
	all    sync.WaitGroup
}

type waiting struct{ group, node, instance string }

func waitingOf(group string, c baton.Candidate) waiting {
	return waiting{group, c.NodeID, c.InstanceID}
}

// keeper holds one place.
type keeper struct {
	s     *Store
	group string
	c     baton.Candidate
	stop  context.CancelCauseFunc

	// Guarded by keepers.mu.
	waiters int
	away    *time.Timer   // ends the place; runs while nobody waits
	called  chan struct{} // closed while it is the candidate's turn
	done    chan struct{} // closed when the keeper is
	err     error         // why, once it is done
}

func (ks *keepers) keeps(group string, c baton.Candidate) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.places[waitingOf(group, c)] != nil
}

// await waits at a place for its turn.
func (ks *keepers) await(ctx context.Context, s *Store, group string, c baton.Candidate) error {
	for {
		k, called, err := ks.attach(s, group, c)
		if err != nil {
			return err
		}
		select {
		case <-called:
			err = nil
		case <-k.done:
			err = k.err
		case <-ctx.Done():
			err = ctx.Err()
		}
		ks.detach(k)
		if !errors.Is(err, errDismissed) {
			return err
		}
	}
}

// attach finds the keeper of a place, or engages one.
func (ks *keepers) attach(s *Store, group string, c baton.Candidate) (*keeper, <-chan struct{}, error) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.closed {
		return nil, nil, errClosed
	}
	id := waitingOf(group, c)
	k := ks.places[id]
	if k == nil {
		if ks.places == nil {
			ks.places = map[waiting]*keeper{}
		}
		ctx, stop := context.WithCancelCause(context.Background())
		k = &keeper{s: s, group: group, c: c, stop: stop, called: make(chan struct{}), done: make(chan struct{})}
		ks.places[id] = k
		ks.all.Go(func() {
			err := k.keep(ctx)
			ks.mu.Lock()
			delete(ks.places, id)
			k.err = err
			close(k.done)
			ks.mu.Unlock()
			k.leave()
		})
	}
	k.waiters++
	if k.away != nil {
		k.away.Stop()
		k.away = nil
	}
	return k, k.called, nil
}

// detach lets the place be kept for a while when nobody waits there any more.
func (ks *keepers) detach(k *keeper) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if k.waiters--; k.waiters == 0 {
		k.away = time.AfterFunc(placeKept, func() { k.stop(errDismissed) })
	}
}

// dismiss ends the keeping of a place whose candidate has what it waited for.
func (ks *keepers) dismiss(group string, c baton.Candidate) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if k := ks.places[waitingOf(group, c)]; k != nil {
		k.stop(errDismissed)
	}
}

func (ks *keepers) close() {
	ks.mu.Lock()
	ks.closed = true
	for _, k := range ks.places {
		if k.away != nil {
			k.away.Stop()
		}
		k.stop(errClosed)
	}
	ks.mu.Unlock()
	ks.all.Wait()
}

// call makes it the candidate's turn, or takes that back.
func (k *keeper) call(turn bool) {
	ks := &k.s.keepers
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if turn {
		close(k.called)
	} else {
		k.called = make(chan struct{})
	}
}

// leave removes the place, as soon as ZooKeeper can be reached, unless the
// candidate has come back to it: the session may last, and who is behind would wait for nobody.
func (k *keeper) leave() {
	session := k.s.conn.SessionID()
	for !k.s.keepers.keeps(k.group, k.c) && k.s.conn.SessionID() == session {
		ctx, cancel := k.s.leases.Begin(context.Background(), true)
		err := k.s.leavePlaces(ctx, k.group, k.c)
		cancel()
		if err == nil || baton.IsAnswer(err) {
			return
		}
		select {
		case <-k.s.leases.Closed(): // with the session the place goes too
			return
		case <-time.After(retryPause):
		}
	}
}

// keep holds the place until it is dismissed, its turn has passed, or ZooKeeper cannot be reached.
func (k *keeper) keep(ctx context.Context) (err error) {
	defer func() {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
	}()
	gaveWay := uint64(0) // how many leaderships had ended when a successor was last let go first
	for ctx.Err() == nil {
		places, me, err := k.stand(ctx)
		if err != nil {
			return err
		}
		name := places[me].name
		if me > 0 && !k.nudged(ctx, name) {
			if err := k.wait(ctx, places[me-1].name, name); err != nil {
				return err
			}
			continue
		}
		vacant, err := k.vacancy(ctx, name)
		switch {
		case err != nil:
			return err
		case vacant == nil: // something happened to the place
			continue
		case vacant.Successor != "": // which may have come since
			if places, me, err = k.stand(ctx); err != nil {
				return err
			}
		}
		if vacant.Holder == nil && !first(places, vacant.Successor, k.c) && (me > 0 || vacant.Ended != gaveWay) {
			// The head of the line lets a named successor go first, once.
			gaveWay = vacant.Ended
			if err := k.untilHeld(ctx, vacant); err != nil {
				return err
			}
			continue
		}
		k.call(true)
		if err := k.untilHeld(ctx, vacant); err != nil {
			return err
		}
		now, err := k.look(ctx)
		if err != nil {
			return err
		}
		if now.Holder == nil || now.Holder.Node == k.c.NodeID && now.Holder.Instance == k.c.InstanceID {
			return errDismissed // it did not come, or it came by another way
		}
		k.call(false)
	}
	return context.Cause(ctx)
}

// stand makes sure that the place is there, and finds it in the line. It may
// have gone with a session that ended while ZooKeeper could not be reached.
func (k *keeper) stand(ctx context.Context) ([]place, int, error) {
	ctx, cancel := k.s.leases.Begin(ctx, true)
	defer cancel()
	for ctx.Err() == nil {
		places, err := k.s.places(ctx, k.group)
		if err != nil {
			return nil, 0, err
		}
		if me := find(places, k.c); me >= 0 {
			return places, me, nil
		}
		if err := k.s.takePlace(ctx, k.group, k.c); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, context.Cause(ctx)
}

// nudged reports whether the candidate was told that it is to succeed.
func (k *keeper) nudged(ctx context.Context, name string) bool {
	ctx, cancel := k.s.leases.Begin(ctx, true)
	defer cancel()
	text, _, err := k.s.get(ctx, k.s.path("line", k.group, name))
	return err == nil && len(text) > 0
}

// wait returns when something may have happened to one of these places, or it is time to look.
func (k *keeper) wait(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	var err error
	var once sync.Once
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			failed := k.s.touched(ctx, k.s.path("line", k.group, name))
			once.Do(func() { err = failed; cancel() })
		})
	}
	all.Wait()
	if baton.IsAnswer(err) {
		return err
	}
	return nil // whether ZooKeeper is there shows the next look
}

// vacancy waits until the group is vacant or the candidate's, and observes its
// lease meanwhile. It is nil when something happened to the place before.
func (k *keeper) vacancy(ctx context.Context, name string) (*observed.Record, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	touched := make(chan struct{})
	all.Go(func() {
		if k.s.touched(ctx, k.s.path("line", k.group, name)) == nil {
			close(touched)
			cancel()
		}
	})
	r, err := k.s.leases.Vacancy(ctx, k.group, k.c)
	cancel()
	select {
	case <-touched:
		if err != nil {
			return nil, nil
		}
	default:
	}
	return &r, err
}

// untilHeld returns when somebody has taken the vacant group, or the turn has passed.
func (k *keeper) untilHeld(ctx context.Context, vacant *observed.Record) error {
	if vacant.Holder != nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, turnKept)
	defer cancel()
	_, err := k.s.leases.Held(waiting, k.group)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && waiting.Err() == nil {
		return err
	}
	return nil
}

func (k *keeper) look(ctx context.Context) (observed.Record, error) {
	now, err := k.s.leases.Look(ctx, k.group)
	return now.Record, err
}
