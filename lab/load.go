package lab

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"baton/internal/fleet"
)

// load asks a fleet for numbers, as a Load says.
//
// Three of four clients are loyal: they stay with the node that served them last,
// and wait for it however long it takes, as a client does that has no timeout.
// They are how a leader that has woken up finds work. The others ask one node
// after the other and give up soon, so that the next leader has work, too.
type load struct {
	nodes []string      // addresses
	every time.Duration // between two requests of one client

	cancel context.CancelFunc
	wg     sync.WaitGroup
	asked  atomic.Int64

	mu      sync.Mutex
	answers []Answer
}

// roamingTimeout is when a roaming client gives up on a node.
const roamingTimeout = 300 * time.Millisecond

func startLoad(nodes []fleet.Node, of Load) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	if of.PerSecond > 0 {
		l.every = time.Duration(of.Clients) * time.Second / time.Duration(of.PerSecond)
	}
	for _, n := range nodes {
		l.nodes = append(l.nodes, n.HTTP)
	}
	for i := range of.Clients {
		l.wg.Go(func() {
			own := newWires()
			defer own.close()
			c := &http.Client{Transport: own}
			if i%4 < 3 {
				l.loyal(ctx, c, i)
			} else {
				l.roam(ctx, c, i)
			}
		})
	}
	return l
}

func (l *load) loyal(ctx context.Context, c *http.Client, at int) {
	var kept []Answer
	defer func() { l.keep(kept) }()
	for due := time.Now(); ctx.Err() == nil; {
		if a, ok := l.ask(ctx, c, at); ok {
			kept = append(kept, a)
			// A little late is made up for; what a failover cost is not.
			due = due.Add(l.every)
			if late := time.Since(due); late > 100*time.Millisecond {
				due = due.Add(late)
			}
			pause(ctx, time.Until(due))
			continue
		}
		at++
		pause(ctx, 25*time.Millisecond)
	}
}

func (l *load) roam(ctx context.Context, c *http.Client, at int) {
	var kept []Answer
	defer func() { l.keep(kept) }()
	for ; ctx.Err() == nil; at++ {
		began := time.Now()
		asking, cancel := context.WithTimeout(ctx, roamingTimeout)
		a, ok := l.ask(asking, c, at)
		cancel()
		if ok {
			kept = append(kept, a)
		}
		pause(ctx, max(l.every, 5*time.Millisecond)-time.Since(began))
	}
}

func (l *load) ask(ctx context.Context, c *http.Client, at int) (Answer, bool) {
	a := Answer{Sent: fleet.Now()}
	l.asked.Add(1)
	n, err := fleet.Next(ctx, c, l.nodes[at%len(l.nodes)])
	a.Received, a.Token, a.Seq = fleet.Now(), n.Token, n.Seq
	return a, err == nil
}

func (l *load) keep(answers []Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, answers...)
}

// stop ends the load and returns what it was given, by when it came.
func (l *load) stop() []Answer {
	l.cancel()
	l.wg.Wait()
	slices.SortFunc(l.answers, func(a, b Answer) int { return cmp.Compare(a.Received, b.Received) })
	return l.answers
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
