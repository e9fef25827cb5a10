package line

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fleet is a thousand candidates of every kind over one line, and a referee.
type fleet struct {
	*store
	t *testing.T

	mu         sync.Mutex
	calledAt   time.Time // when the last turn began that was not used yet
	calledWhom string
	patient    []string
	served     map[string]bool
}

// turn is what a candidate does that was called. The referee allows one turn at a time:
// the next only when the one before was used, or missed.
func (f *fleet) turn(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := time.Since(f.calledAt); f.calledWhom != "" && since < TurnKept {
		f.t.Errorf("%s was called %v after %s, which still has its turn", node, since, f.calledWhom)
	}
	f.calledAt, f.calledWhom = time.Now(), node
}

func (f *fleet) lead(node string, d time.Duration) {
	f.mu.Lock()
	f.calledWhom = ""
	f.served[node] = true
	f.mu.Unlock()
	f.store.mu.Lock()
	if f.holder != "" {
		f.t.Errorf("%s was called while %s leads", node, f.holder)
	}
	f.store.mu.Unlock()
	f.grant(node)
	time.Sleep(d)
	f.vacate("", 0)
}

func TestStressEveryVacancyCallsOneAndNobodyStarves(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stress(t, seed, 1000) })
		})
	}
}

func stress(t *testing.T, seed uint64, n int) {
	f := &fleet{store: newStore(t, "z"), t: t, served: map[string]bool{}}
	rnd := rand.New(rand.NewPCG(seed, 1))
	var wg sync.WaitGroup
	var want, must []string // the patient in order of arrival; those who must be served
	for i := range n {
		node := fmt.Sprintf("n%03d", i)
		r := rand.New(rand.NewPCG(seed, uint64(i)+2))
		ms := func(most int) time.Duration { return time.Duration(1+r.IntN(most)) * time.Millisecond }
		hold := ms(20)
		var live func()
		switch rnd.IntN(10) {
		case 0: // crashes when it is called
			live = func() {
				if f.Await(context.Background(), group, candidate(node)) == nil {
					f.turn(node)
				}
			}
		case 1: // gives up at some time
			live = func() {
				ctx, cancel := context.WithTimeout(context.Background(), ms(10_000))
				defer cancel()
				if f.Await(ctx, group, candidate(node)) == nil {
					f.turn(node)
					f.lead(node, hold)
				}
			}
		case 2, 3, 4: // polls
			must = append(must, node)
			live = func() {
				for {
					ctx, cancel := context.WithTimeout(context.Background(), ms(300))
					err := f.Await(ctx, group, candidate(node))
					cancel()
					if err == nil {
						f.turn(node)
						f.lead(node, hold)
						return
					}
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Await of %s: %v", node, err)
						return
					}
					time.Sleep(ms(100))
				}
			}
		default: // waits patiently
			want = append(want, node)
			must = append(must, node)
			live = func() {
				if err := f.Await(context.Background(), group, candidate(node)); err != nil {
					t.Errorf("Await of %s: %v", node, err)
					return
				}
				f.turn(node)
				f.mu.Lock()
				f.patient = append(f.patient, node)
				f.mu.Unlock()
				f.lead(node, hold)
			}
		}
		wg.Go(live)
		synctest.Wait() // it has its place before the next one comes
	}
	f.vacate("", 0)
	wg.Wait()

	if got := fmt.Sprint(f.patient); got != fmt.Sprint(want) {
		t.Errorf("those who waited patiently were called in the order\n%s\nbut came in the order\n%s", got, fmt.Sprint(want))
	}
	for _, node := range must {
		if !f.served[node] {
			t.Errorf("%s starved", node)
		}
	}
	time.Sleep(PlaceKept)
	f.forgotten(t)
}

// A line of real goroutines on the real clock, where everything happens at
// once: whatever the order of calls, cancellations and grants, someone is
// called as long as anyone waits.
func TestRacesLoseNoWakeUp(t *testing.T) {
	const candidates, vacancies = 32, 500
	s := newStore(t, "z")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	turns := make(chan string)
	var wg sync.WaitGroup
	for i := range candidates {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			node := fmt.Sprintf("n%d", i)
			for ctx.Err() == nil {
				poll, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(500))*time.Microsecond)
				err := s.Await(poll, group, candidate(node))
				cancel()
				if err != nil {
					continue
				}
				select {
				case turns <- node:
				case <-ctx.Done():
				}
			}
		})
	}
	for range vacancies {
		s.vacate("", 0)
		select {
		case node := <-turns:
			s.grant(node)
		case <-time.After(time.Minute):
			t.Fatalf("nobody is called although %d wait", s.Len(group))
		}
	}
	stop()
	wg.Wait()
}
