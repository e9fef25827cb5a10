package bully

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/fence"
	"baton/internal/leak"
	"baton/internal/testserver"
)

func TestMain(m *testing.M) { leak.Main(m) }

// cable carries what nodes say to each other, unless it is cut.
type cable struct {
	mu    sync.Mutex
	names map[string]string // address to node
	cut   map[[2]string]bool
}

type end struct {
	c    *cable
	from string
	*http.Transport
}

var errCut = errors.New("cut")

func (e end) RoundTrip(r *http.Request) (*http.Response, error) {
	e.c.mu.Lock()
	to := e.c.names[r.URL.Host]
	cut := e.c.cut[[2]string{e.from, to}] || e.c.cut[[2]string{to, e.from}]
	e.c.mu.Unlock()
	if cut {
		return nil, errCut
	}
	return e.Transport.RoundTrip(r)
}

func (c *cable) set(cut bool, pairs ...[2]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range pairs {
		c.cut[p] = cut
	}
}

type nodes struct {
	t     *testing.T
	cable *cable
	peers map[string]string
	open  map[string]*Elector
}

// newNodes starts nodes that miss nobody who stands still for a second. So the tests take a while, beside each other.
func newNodes(t *testing.T, size int) *nodes {
	t.Helper()
	t.Parallel()
	n := &nodes{t: t, cable: &cable{names: map[string]string{}, cut: map[[2]string]bool{}}, peers: map[string]string{}, open: map[string]*Elector{}}
	for i := range size {
		id, address := fmt.Sprintf("n%d", i+1), testserver.FreeAddress(t)
		n.peers[id], n.cable.names[address] = address, id
	}
	for id := range n.peers {
		n.start(id)
	}
	t.Cleanup(func() {
		for id := range n.open {
			n.stop(id)
		}
	})
	return n
}

func (n *nodes) start(id string) {
	n.t.Helper()
	e, err := Open(Config{
		Group: "g", NodeID: id, Metadata: map[string]string{"of": id}, Peers: n.peers, ElectionTimeout: 3 * time.Second,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Clock: baton.SystemClock(),
		transport: end{n.cable, id, &http.Transport{}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.open[id] = e
}

func (n *nodes) stop(id string) {
	if err := n.open[id].Close(); err != nil {
		n.t.Errorf("close %s: %v", id, err)
	}
	delete(n.open, id)
}

func (n *nodes) campaign(id string) <-chan *baton.Leadership {
	won := make(chan *baton.Leadership, 1)
	e := n.open[id]
	go func() {
		ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
		defer cancel()
		l, err := e.Campaign(ctx)
		if err != nil && !errors.Is(err, baton.ErrClosed) && !errors.Is(err, context.Canceled) {
			n.t.Errorf("campaign of %s: %v", id, err)
		}
		won <- l
	}()
	return won
}

// The highest id leads; when it resigns the next one does; and it takes the leadership back when it
// comes again, each time.
func TestHighestLeads(t *testing.T) {
	n := newNodes(t, 3)
	low := <-n.campaign("n1")
	if low == nil || !low.Valid() {
		t.Fatal("n1 does not lead, and nobody else wants to")
	}
	if _, err := n.open["n1"].Campaign(t.Context()); !errors.Is(err, baton.ErrConflict) {
		t.Errorf("a second campaign: %v", err)
	}
	last := low.Term()
	for round := range 2 {
		high := <-n.campaign("n3")
		<-low.Over()
		if !errors.Is(low.Cause(), ErrBullied) || high.Term() <= last {
			t.Errorf("round %d: term %d ended with %v, and term %d follows", round, low.Term(), low.Cause(), high.Term())
		}
		waiting := n.campaign("n1")
		for event, err := range n.open["n2"].Observe(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if event.NodeID == "n3" && event.Term == high.Term() && event.Metadata["of"] == "n3" {
				break
			}
		}
		if err := high.Resign(t.Context()); err != nil {
			t.Errorf("resign: %v", err)
		}
		low, last = <-waiting, high.Term()
	}
	sent := n.open["n1"].Sent()
	t.Logf("n1 held %d elections, with %d questions and %d declarations of victory", sent["elections"], sent[election], sent[victory])
	if sent["elections"] < 3 || sent[election] < 2*sent["elections"] {
		t.Errorf("n1 has sent %v: every election asks both of the higher", sent)
	}
}

// A leader that dies is missed after its silence.
func TestLeaderDies(t *testing.T) {
	n := newNodes(t, 3)
	high, waiting := <-n.campaign("n3"), n.campaign("n2")
	n.cable.set(true, [2]string{"n3", "n1"}, [2]string{"n3", "n2"}) // so that its last words are not heard
	n.stop("n3")
	if next := <-waiting; next == nil || next.Term() <= high.Term() {
		t.Errorf("%v follows %v", next, high)
	}
}

// In a partition both parts have a leader, and both believe to be right. What the ledger of the
// resource has adopted last goes on, and the other one is refused, with its token.
func TestPartitionHasTwoLeaders(t *testing.T) {
	n := newNodes(t, 3)
	ledger := &fence.Memory{}
	high, waiting := <-n.campaign("n3"), n.campaign("n2")
	write := func(l *baton.Leadership) error {
		return ledger.Write(t.Context(), "ledger", fence.Unordered(l.Token()), func(context.Context) error { return nil })
	}
	adopt := func(l *baton.Leadership) error { _, err := ledger.Adopt(t.Context(), "ledger", l.Token()); return err }
	if err := errors.Join(adopt(high), write(high)); err != nil {
		t.Fatal(err)
	}
	n.cable.set(true, [2]string{"n3", "n1"}, [2]string{"n3", "n2"})
	other := <-waiting
	if !high.Valid() || !other.Valid() {
		t.Fatalf("n3 leads: %v, n2 leads: %v; without a quorum both do", high.Valid(), other.Valid())
	}
	t.Logf("two leaders at once, with the terms %d and %d", high.Term(), other.Term())
	if err := errors.Join(adopt(other), write(other)); err != nil {
		t.Errorf("the later one is refused: %v", err)
	}
	if err := write(high); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the stale leader's write: %v", err)
	}
	again := n.campaign("n1")
	n.cable.set(false, [2]string{"n3", "n1"}, [2]string{"n3", "n2"})
	<-other.Over()
	if !errors.Is(other.Cause(), ErrBullied) {
		t.Errorf("after the partition the lower one ends with %v", other.Cause())
	}
	// And so the one that is left has a token that the ledger has passed: it never writes again under it.
	if err := write(high); !errors.Is(err, fence.ErrStale) || !high.Valid() {
		t.Errorf("the bully's write: %v", err)
	}
	high.Lose(fence.ErrStale)
	if next := <-again; next != nil && adopt(next) != nil {
		t.Errorf("the next one, with term %d, cannot adopt", next.Term())
	}
}

func TestOpenWrongly(t *testing.T) {
	good := Config{Group: "g", NodeID: "n1", Peers: map[string]string{"n1": "127.0.0.1:0"}, ElectionTimeout: time.Second, Clock: baton.SystemClock(), Logger: slog.Default()}
	for name, breakIt := range map[string]func(*Config){
		"no peer":    func(c *Config) { c.NodeID = "n2" },
		"no group":   func(c *Config) { c.Group = "" },
		"hasty":      func(c *Config) { c.ElectionTimeout = time.Millisecond },
		"no address": func(c *Config) { c.Peers = map[string]string{"n1": "nowhere"} },
	} {
		c := good
		breakIt(&c)
		if _, err := Open(c); !errors.Is(err, baton.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !strings.Contains(Caveats[0], "no quorum") {
		t.Error("it does not say what it lacks")
	}
}
