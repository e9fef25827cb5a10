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

// load asks a fleet for numbers at a bounded rate.
//
// Three of four clients are loyal: they stay with the node that served them last,
// and wait for it however long it takes, as a client does that has no timeout.
// They are how a leader that has woken up finds work. The others ask one node
// after the other and give up soon, so that the next leader has work, too.
type load struct {
	http    *http.Client
	nodes   []string // addresses
	every   time.Duration
	clients int

	cancel context.CancelFunc
	wg     sync.WaitGroup
	asked  atomic.Int64

	mu      sync.Mutex
	answers []Answer
}

// roamingTimeout is when a roaming client gives up on a node.
const roamingTimeout = 300 * time.Millisecond

func startLoad(nodes []string, clients, perSecond int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{
		http:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * clients}},
		nodes: nodes, clients: clients, cancel: cancel,
		every: time.Duration(clients) * time.Second / time.Duration(perSecond),
	}
	for i := range clients {
		l.wg.Go(func() {
			if i%4 < 3 {
				l.loyal(ctx, i)
			} else {
				l.roam(ctx, i)
			}
		})
	}
	return l
}

func (l *load) loyal(ctx context.Context, at int) {
	var kept []Answer
	defer func() { l.keep(kept) }()
	for ctx.Err() == nil {
		began := time.Now()
		if a, ok := l.ask(ctx, at); ok {
			kept = append(kept, a)
			pause(ctx, l.every-time.Since(began))
			continue
		}
		at++
		pause(ctx, 25*time.Millisecond)
	}
}

func (l *load) roam(ctx context.Context, at int) {
	var kept []Answer
	defer func() { l.keep(kept) }()
	for ; ctx.Err() == nil; at++ {
		began := time.Now()
		asking, cancel := context.WithTimeout(ctx, roamingTimeout)
		a, ok := l.ask(asking, at)
		cancel()
		if ok {
			kept = append(kept, a)
		}
		pause(ctx, max(l.every, 5*time.Millisecond)-time.Since(began))
	}
}

func (l *load) ask(ctx context.Context, at int) (Answer, bool) {
	a := Answer{Sent: fleet.Now()}
	l.asked.Add(1)
	n, err := fleet.Next(ctx, l.http, l.nodes[at%len(l.nodes)])
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
	l.http.CloseIdleConnections()
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
