package observed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"baton"
	"baton/internal/freeze"
)

// memory is a register that never fails, and what the simulated ones reach over
// a network that does.
type memory struct {
	place   string
	mu      sync.Mutex
	records map[string]Snapshot
	past    map[string][]Past
	writes  int
	changed chan struct{}
	// blindExpiry is a mistake: a lease is ended whatever version it has by now.
	blindExpiry bool
}

func newMemory() *memory {
	return &memory{place: newID(), records: map[string]Snapshot{}, past: map[string][]Past{}, changed: make(chan struct{})}
}

func (m *memory) Read(_ context.Context, group string) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.records[group]
	s.Place = m.place
	return s, nil
}

func (m *memory) Swap(_ context.Context, group string, old Snapshot, next Record) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	expires := next.Last != nil && next.Ended > old.Record.Ended && next.Last.Reason == baton.Expired
	if m.records[group].Version != old.Version && !(m.blindExpiry && expires && m.records[group].Record.Ended == old.Record.Ended) {
		return Snapshot{}, ErrChanged
	}
	m.writes++
	s := Snapshot{Record: next, Version: Version(fmt.Sprint(m.writes)), Place: m.place}
	m.records[group] = s
	if next.Ended > old.Record.Ended {
		m.past[group] = append(m.past[group], *next.Last)
		m.past[group] = m.past[group][max(0, len(m.past[group])-MaxPast):]
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return s, nil
}

func (m *memory) Wait(ctx context.Context, group string, known Version) error {
	for {
		m.mu.Lock()
		version, changed := m.records[group].Version, m.changed
		m.mu.Unlock()
		if version != known {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *memory) Past(_ context.Context, group string) ([]Past, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Past(nil), m.past[group]...), nil
}

var errOnTheWay = errors.New("lost on the way")

// remote is memory as one process reaches it: requests and answers are late,
// lost and repeated, and the process may stand still before and after each.
type remote struct {
	*memory
	gate *freeze.Gate
	mu   sync.Mutex
	rng  *rand.Rand
	late *sync.WaitGroup
}

func (r *remote) draw() (fate int, there, back, later time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delay := func() time.Duration {
		if r.rng.IntN(5) == 0 {
			return time.Duration(r.rng.IntN(700)) * time.Millisecond
		}
		return time.Duration(r.rng.IntN(20)) * time.Millisecond
	}
	return r.rng.IntN(40), delay(), delay(), time.Duration(r.rng.IntN(3000)) * time.Millisecond
}

// travel carries out f at the other end, perhaps.
func (r *remote) travel(ctx context.Context, f func()) error {
	fate, there, back, later := r.draw()
	r.gate.Pass()
	afterwards := func() {
		r.late.Go(func() {
			time.Sleep(later)
			f()
		})
	}
	pause(ctx, there)
	switch fate {
	case 0: // the request is lost
		pause(ctx, back)
		return errOnTheWay
	case 1: // the answer is lost
		f()
		pause(ctx, back)
		return errOnTheWay
	case 2: // the request comes when nobody waits for it any more
		afterwards()
		return errOnTheWay
	case 3: // the request comes twice
		afterwards()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f()
	pause(ctx, back)
	r.gate.Pass()
	return ctx.Err()
}

func (r *remote) Read(ctx context.Context, group string) (Snapshot, error) {
	answers := make(chan Snapshot, 2)
	lost := r.travel(ctx, func() {
		s, _ := r.memory.Read(ctx, group)
		answers <- s
	})
	if lost != nil {
		return Snapshot{}, lost
	}
	return <-answers, nil
}

// Peek is of a state that may be as old as the network is slow.
func (r *remote) Peek(ctx context.Context, group string) (Snapshot, error) {
	s, err := r.memory.Read(ctx, group)
	if lost := r.travel(ctx, func() {}); lost != nil {
		return Snapshot{}, lost
	}
	return s, err
}

func (r *remote) Swap(ctx context.Context, group string, old Snapshot, next Record) (Snapshot, error) {
	answers := make(chan func() (Snapshot, error), 2)
	lost := r.travel(ctx, func() {
		s, err := r.memory.Swap(ctx, group, old, next)
		answers <- func() (Snapshot, error) { return s, err }
	})
	if lost != nil {
		return Snapshot{}, lost
	}
	return (<-answers)()
}

func (r *remote) Wait(ctx context.Context, group string, known Version) error {
	err := r.memory.Wait(ctx, group, known)
	r.gate.Pass()
	return err
}

// drifting is a clock with an offset and a rate of its own.
type drifting struct {
	rate   float64
	offset time.Duration
	start  time.Time
	gate   *freeze.Gate
}

func (d *drifting) Now() time.Duration {
	return d.offset + time.Duration(float64(time.Since(d.start))*d.rate)
}

func (d *drifting) AfterFunc(after time.Duration, f func()) func() bool {
	return time.AfterFunc(time.Duration(float64(after)/d.rate), func() { d.gate.Pass(); f() }).Stop
}

// when is the true time of a reading.
func (d *drifting) when(reading time.Duration) time.Time {
	return d.start.Add(time.Duration(float64(reading-d.offset) / d.rate))
}
