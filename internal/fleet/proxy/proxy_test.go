package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"baton/internal/fleet"
	"baton/internal/leak"
	"baton/internal/testserver"
)

func TestMain(m *testing.M) { leak.Main(m) }

// backend takes connections and hands them to the test.
type backend struct {
	net.Listener
	accepted chan net.Conn
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{l, make(chan net.Conn)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				close(b.accepted)
				return
			}
			b.accepted <- conn
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		for conn := range b.accepted {
			_ = conn.Close()
		}
		<-ended
	})
	return b
}

func open(t *testing.T, backend string) (p *Proxy, via string) {
	t.Helper()
	via = testserver.FreeAddress(t)
	p, err := Open(&fleet.File{Store: "http://" + backend, Nodes: []fleet.Node{{ID: "n1", Via: []string{via}}, {ID: "n2"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, via
}

// conn is one end of a connection through the proxy.
type conn struct {
	net.Conn
	t     *testing.T
	lines *bufio.Reader
}

func newConn(t *testing.T, c net.Conn) *conn {
	t.Cleanup(func() { _ = c.Close() })
	return &conn{c, t, bufio.NewReader(c)}
}

func dial(t *testing.T, address string) *conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return newConn(t, c)
}

func (c *conn) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *conn) hears(text string) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	if line, err := c.lines.ReadString('\n'); err != nil || line != text+"\n" {
		c.t.Fatalf("heard %q, %v, want %q", line, err, text)
	}
}

// hearsNothing listens for a moment.
func (c *conn) hearsNothing() {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		c.t.Fatal(err)
	}
	if b, err := c.lines.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %q, %v", b, err)
	}
}

func set(t *testing.T, p *Proxy, f Fault) {
	t.Helper()
	if err := p.Set("n1", f); err != nil {
		t.Fatal(err)
	}
}

func heal(t *testing.T, p *Proxy) {
	t.Helper()
	if err := p.Heal("n1"); err != nil {
		t.Fatal(err)
	}
}

var cut = Trouble{Cut: true}

// What a cut holds back arrives when it is healed, in order, on the connection it was sent on.
func TestCutHoldsBack(t *testing.T) {
	for _, tt := range []struct {
		direction Direction
		to, from  bool // still gets through
	}{{Both, false, false}, {ToBackend, false, true}, {FromBackend, true, false}} {
		t.Run(string(tt.direction), func(t *testing.T) {
			b := newBackend(t)
			p, via := open(t, b.Addr().String())
			node := dial(t, via)
			server := newConn(t, <-b.accepted)
			node.say("a")
			server.hears("a")
			server.say("b")
			node.hears("b")

			set(t, p, cut.In(tt.direction))
			node.say("c")
			server.say("d")
			for _, end := range []struct {
				*conn
				through bool
				text    string
			}{{server, tt.to, "c"}, {node, tt.from, "d"}} {
				if end.through {
					end.hears(end.text)
				} else {
					end.hearsNothing()
				}
			}
			heal(t, p)
			node.say("e")
			server.say("f")
			if !tt.to {
				server.hears("c")
			}
			server.hears("e")
			if !tt.from {
				node.hears("d")
			}
			node.hears("f")
		})
	}
}

// Neither end learns through a cut that the other has gone, and both do after it.
func TestCutHoldsBackTheEnd(t *testing.T) {
	b := newBackend(t)
	p, via := open(t, b.Addr().String())
	node := dial(t, via)
	server := newConn(t, <-b.accepted)
	set(t, p, cut.In(Both))
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	server.hearsNothing()
	heal(t, p)
	if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the cut: %v", err)
	}
}

// A connection made during a cut is taken, as the kernel does, and reaches the
// backend after it.
func TestNewConnectionsDuringACut(t *testing.T) {
	b := newBackend(t)
	p, via := open(t, b.Addr().String())
	set(t, p, cut.In(ToBackend))
	node := dial(t, via)
	node.say("a")
	node.hearsNothing()
	select {
	case <-b.accepted:
		t.Fatal("it got through")
	default:
	}
	heal(t, p)
	newConn(t, <-b.accepted).hears("a")
}

func TestDelay(t *testing.T) {
	b := newBackend(t)
	p, via := open(t, b.Addr().String())
	node := dial(t, via)
	server := newConn(t, <-b.accepted)
	set(t, p, Trouble{DelayMS: 150}.In(FromBackend))
	began := time.Now()
	node.say("a")
	server.hears("a")
	server.say("b")
	node.hears("b")
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("it took %v only", took)
	}
}

// A fault whose maker has died ends by itself; one that was replaced has no end left.
func TestFaultsEnd(t *testing.T) {
	b := newBackend(t)
	p, via := open(t, b.Addr().String())
	node := dial(t, via)
	server := newConn(t, <-b.accepted)
	f := cut.In(Both)
	f.ForMS = 100
	set(t, p, f)
	node.say("a")
	server.hears("a")
	set(t, p, f)
	set(t, p, cut.In(Both))
	node.say("b")
	if err := server.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.lines.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the end of a fault that was replaced: %v", err)
	}
}

// A backend that is not there refuses, and nothing hangs.
func TestBackendIsGone(t *testing.T) {
	_, via := open(t, testserver.FreeAddress(t))
	c, err := net.Dial("tcp", via)
	if err != nil {
		return // refused so early that it shows here
	}
	node := newConn(t, c)
	if err := node.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// Closing breaks off what a cut holds.
func TestCloseDuringACut(t *testing.T) {
	b := newBackend(t)
	p, via := open(t, b.Addr().String())
	dial(t, via).say("a")
	newConn(t, <-b.accepted).hears("a")
	set(t, p, cut.In(Both))
	dial(t, via).say("b")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestOrders(t *testing.T) {
	b := newBackend(t)
	p, _ := open(t, b.Addr().String())
	s := httptest.NewServer(p.Handler())
	defer s.Close()
	c := &Client{Address: strings.TrimPrefix(s.URL, "http://"), HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	want := Fault{ToBackend: Trouble{Cut: true}, FromBackend: Trouble{DelayMS: 7}}
	if err := c.Set(t.Context(), "n1", want); err != nil {
		t.Fatal(err)
	}
	if got := p.Faults()["n1"]; got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := c.Heal(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if got := p.Faults()["n1"]; got != nil {
		t.Errorf("healed: %+v", got)
	}
	if err := c.Set(t.Context(), "n2", want); err == nil || !strings.Contains(err.Error(), ErrNoNode.Error()) {
		t.Errorf("a node that does not go via the proxy: %v", err)
	}
	if err := c.Set(t.Context(), "n1", Fault{ForMS: -1}); err == nil || !strings.Contains(err.Error(), "not negative") {
		t.Errorf("a fault that makes no sense: %v", err)
	}
}
