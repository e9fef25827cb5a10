// Command inprocess elects a leader among three nodes that live in one process
// and share one store in memory. The leader is cut off in the middle of its
// work, another takes over; that one is asked to stop and hands over to the third.
//
//	go run ./examples/inprocess
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"baton"
	"baton/store/memstore"
)

const (
	group = "payments-coordinator"
	ttl   = 2 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := play(ctx, os.Stdout, baton.SystemClock()); err != nil {
		fmt.Fprintln(os.Stderr, "inprocess:", err)
		os.Exit(1)
	}
}

// play tells the story, once, and cuts it short when ctx ends.
func play(ctx context.Context, out io.Writer, clock baton.Clock) error {
	store, err := memstore.New(memstore.Config{Clock: clock})
	if err != nil {
		return err
	}
	s := &stage{out: out, clock: clock, began: clock.Now(), elected: make(chan *node, 1)}
	var nodes []*node
	for _, id := range []string{"node-1", "node-2", "node-3"} {
		n, err := s.node(id, store)
		if err != nil {
			return errors.Join(err, store.Close())
		}
		nodes = append(nodes, n)
	}

	s.say("", "three nodes, one group, leases of %v (press Ctrl-C to end early)", ttl)
	watching, stopWatching := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	watcher.Go(func() { s.narrate(watching, store) })
	for _, n := range nodes {
		n.start()
	}

	err = s.story(ctx)
	if ctx.Err() != nil {
		s.say("", "interrupted: everybody stops, and a leader that can reach the store gives its lease back")
		err = nil
	}
	for _, n := range nodes {
		n.stop()
	}
	for _, n := range nodes {
		err = errors.Join(err, n.wait())
	}
	s.pause(context.Background(), 50*time.Millisecond) // the last event is on its way
	stopWatching()
	watcher.Wait()
	return errors.Join(err, store.Close())
}

// story is what happens to whoever is elected.
func (s *stage) story(ctx context.Context) error {
	first, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.pause(ctx, 3*ttl/4)
	first.cable.pull()
	s.say("", "--- %s is cut off: from now on nothing passes between it and the store", first.id)

	second, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.say("", "--- %s had stopped by itself %v before %s was let in", first.id,
		(s.now() - time.Duration(first.stopped.Load())).Round(time.Millisecond), second.id)
	s.pause(ctx, 3*ttl/4)
	s.say("", "--- %s is asked to stop, as by a deployment", second.id)
	asked := s.now()
	second.stop()

	third, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.say("", "--- from the request to the next leader: %.1f ms, %v of them the drain",
		float64(s.now()-asked)/1e6, drain)
	s.pause(ctx, 3*ttl/4)
	s.say("", "--- the end: %s gives its lease back, so nobody would have to wait for it", third.id)
	return ctx.Err()
}

// drain is how long the work takes to put down what it has in hand.
const drain = 20 * time.Millisecond

var errAsked = errors.New("asked to stop")

// node is one member of the fleet: in real life, a process of its own.
type node struct {
	*stage
	id      string
	cable   *cable
	elector *baton.LeaseElector
	stop    func()
	done    chan error
	stopped atomic.Int64 // when its work ended last, as say tells the time
}

func (s *stage) node(id string, store *memstore.Store) (*node, error) {
	n := &node{stage: s, id: id, cable: newCable(store), done: make(chan error, 1)}
	var err error
	n.elector, err = baton.NewElector(n.cable, baton.Config{
		Group: group, NodeID: id, TTL: ttl,
		Clock:  s.clock,
		Logger: slog.New(slog.DiscardHandler), // this program does the talking
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (n *node) start() {
	ctx, cancel := context.WithCancelCause(context.Background())
	n.stop = func() { cancel(errAsked) }
	go func() { n.done <- baton.Run(ctx, n.elector, n.work) }()
}

// wait returns when the node is gone.
func (n *node) wait() error {
	err := <-n.done
	if errors.Is(err, context.Canceled) {
		err = nil // as it was asked to
	}
	return errors.Join(err, n.elector.Close())
}

// work is what only the leader does. The token goes along with everything it
// writes, so that whatever it writes to can refuse a leader of the past.
func (n *node) work(ctx context.Context, l *baton.Leadership) error {
	n.say(n.id, "I lead in term %d", l.Term())
	select {
	case n.elected <- n:
	case <-ctx.Done(): // the story is over
	}
	for job := 1; n.pause(ctx, ttl/4); job++ {
		n.say(n.id, "  job %d done under term %d", job, l.Term())
	}
	n.stopped.Store(int64(n.say(n.id, "I stop: %v", context.Cause(ctx))))
	n.pause(context.Background(), drain)
	return nil
}

// stage is where it happens and where it is told.
type stage struct {
	clock   baton.Clock
	began   time.Duration
	elected chan *node

	mu  sync.Mutex
	out io.Writer
}

// leader waits for the next one that is elected.
func (s *stage) leader(ctx context.Context) (*node, error) {
	select {
	case n := <-s.elected:
		return n, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute):
		return nil, errors.New("nobody was elected within a minute")
	}
}

// narrate tells what the store says, which alone decides who leads.
func (s *stage) narrate(ctx context.Context, store baton.Store) {
	for e, err := range store.Watch(ctx, group, "") {
		switch {
		case err != nil:
			return
		case e.Type == baton.LeaderChanged:
			s.say("store", "%s leads, term %d", e.NodeID, e.Term)
		case e.Term == 0:
			s.say("store", "nobody has led yet")
		default:
			s.say("store", "nobody leads: term %d of %s is over, %s", e.Term, e.PreviousNodeID, e.Reason)
		}
	}
}

// now is the time since the story began.
func (s *stage) now() time.Duration { return s.clock.Now() - s.began }

// say returns the time at which it was said.
func (s *stage) say(who, format string, args ...any) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.now()
	_, _ = fmt.Fprintf(s.out, "%7.3fs  %-7s %s\n", at.Seconds(), who, fmt.Sprintf(format, args...))
	return at
}

// pause reports whether it lasted: false if ctx ended it.
func (s *stage) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}
