package proxy

import (
	"strings"
	"testing"

	"baton/internal/fleet"
	"baton/internal/testserver"
)

// openPeers stands between three nodes that elect among themselves; via is where
// the first of the pair reaches the second.
func openPeers(t *testing.T) (p *Proxy, via map[[2]string]string, peers map[string]*backend) {
	t.Helper()
	f := &fleet.File{Backend: "raft"}
	via, peers = map[[2]string]string{}, map[string]*backend{}
	ids := []string{"n1", "n2", "n3"}
	var hosts []string
	for _, from := range ids {
		peers[from] = newBackend(t)
		hosts = append(hosts, peers[from].Addr().String())
		n := fleet.Node{ID: from}
		for _, to := range ids {
			n.Via = append(n.Via, testserver.FreeAddress(t))
			via[[2]string{from, to}] = n.Via[len(n.Via)-1]
		}
		f.Nodes = append(f.Nodes, n)
	}
	f.Store = "raft://" + strings.Join(hosts, ",")
	p, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, via, peers
}

// A node that is cut off neither hears its peers nor is heard by them, whoever of
// the two has connected; the others go on.
func TestPeerIsCutOff(t *testing.T) {
	p, via, peers := openPeers(t)
	connect := func(from, to string) (a, b *conn) {
		a = dial(t, via[[2]string{from, to}])
		b = newConn(t, <-peers[to].accepted)
		a.say("hello")
		b.hears("hello")
		return a, b
	}
	out1, out2 := connect("n1", "n2")
	in3, in1 := connect("n3", "n1")
	other2, other3 := connect("n2", "n3")
	if err := p.Set("n1", cut.In(ToBackend)); err != nil {
		t.Fatal(err)
	}
	out1.say("one")
	out2.hearsNothing()
	out2.say("two")
	out1.hears("two")
	in1.say("three")
	in3.hearsNothing()
	other2.say("four")
	other3.hears("four")
	other3.say("five")
	other2.hears("five")
	if err := p.Heal("n1"); err != nil {
		t.Fatal(err)
	}
	out2.hears("one")
	in3.hears("three")
	if err := p.Set("n1", cut.In(Both)); err != nil {
		t.Fatal(err)
	}
	in3.say("six")
	in1.hearsNothing()
}

// What a node says counts as its own, and as heard by whom it is for.
func TestTrafficIsCounted(t *testing.T) {
	p, via, peers := openPeers(t)
	a := dial(t, via[[2]string{"n1", "n2"}])
	b := newConn(t, <-peers["n2"].accepted)
	for _, text := range []string{"one", "three"} {
		a.say(text)
		b.hears(text)
	}
	b.say("x")
	a.hears("x")
	got := p.Traffic()
	want := map[string]Traffic{
		"n1": {ToBackend: Load{2, 10}, FromBackend: Load{1, 2}},
		"n2": {ToBackend: Load{1, 2}, FromBackend: Load{2, 10}},
		"n3": {},
	}
	for node, w := range want {
		if got[node] != w {
			t.Errorf("%s: got %+v, want %+v", node, got[node], w)
		}
	}
}
