package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"baton/internal/fleet"
	"baton/internal/fleet/proxy"
	"baton/internal/testserver"
)

// wires are what is between the servers of a cluster: from each to each other
// one of its own, and proxies that can hold what goes along it.
//
// All servers know each other by the same addresses. Whoever connects there is
// told by its process, and led to its own wire.
type wires struct {
	t       *testing.T
	ids     []string
	listens map[string]string       // where each server listens
	proxies map[string]*proxy.Proxy // by the server that they lead to; their cables are named after where they come from
	ends    map[wire]string         // where the wires begin

	mu    sync.Mutex
	pids  map[string]int // the latest process of each server
	owned sync.WaitGroup
}

// wire is one of them.
type wire struct{ from, to string }

// wire puts wires between the servers, before they begin.
func (c *cluster) wire() {
	c.t.Helper()
	if _, err := os.Stat("/proc/net/tcp"); err != nil && os.Getenv("CI") != "true" {
		c.t.Skip("SKIPPED: only Linux tells whose a connection is")
	}
	w := &wires{t: c.t, ids: c.ids, listens: map[string]string{}, proxies: map[string]*proxy.Proxy{}, ends: map[wire]string{}, pids: map[string]int{}}
	c.t.Cleanup(w.owned.Wait) // the servers have ended by then, and the proxies
	for _, to := range c.ids {
		w.listens[to] = testserver.FreeAddress(c.t)
		c.own[to] = append(c.own[to], "--peer", w.listens[to])
		bundle := &fleet.File{Backend: "baton", Store: "tcp://" + w.listens[to]}
		for _, from := range c.others(to) {
			end := testserver.FreeAddress(c.t)
			w.ends[wire{from, to}] = end
			bundle.Nodes = append(bundle.Nodes, fleet.Node{ID: from, Via: []string{end}})
		}
		p, err := proxy.Open(bundle)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = p.Close() })
		w.proxies[to] = p
		door, err := net.Listen("tcp4", c.peer[to])
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = door.Close() })
		w.owned.Go(func() { w.accept(door, to) })
	}
	c.wires = w
}

// hold keeps all that is sent to a server on its way: answers and requests.
func (w *wires) hold(id string) {
	w.t.Helper()
	held := proxy.Trouble{Cut: true}
	w.each(id, func(other string) error {
		return errors.Join(w.proxies[other].Set(id, held.In(proxy.FromBackend)), w.proxies[id].Set(other, held.In(proxy.ToBackend)))
	})
}

// deliverAnswers lets arrive, each connection's in its order, what the others answer to this server.
func (w *wires) deliverAnswers(id string) {
	w.t.Helper()
	w.each(id, func(other string) error { return w.proxies[other].Heal(id) })
}

// deliverRequests does so with what they ask it.
func (w *wires) deliverRequests(id string) {
	w.t.Helper()
	w.each(id, func(other string) error { return w.proxies[id].Heal(other) })
}

func (w *wires) each(id string, f func(other string) error) {
	w.t.Helper()
	for _, other := range w.ids {
		if other == id {
			continue
		}
		if err := f(other); err != nil {
			w.t.Fatal(err)
		}
	}
}

// belongs says which process a server is.
func (w *wires) belongs(id string, pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids[id] = pid
}

func (w *wires) accept(l net.Listener, to string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		w.owned.Go(func() {
			defer func() { _ = conn.Close() }()
			from, err := w.owner(conn)
			if err != nil {
				return // it is gone; if not, it tries again
			}
			end, err := net.Dial("tcp4", w.ends[wire{from, to}])
			if err != nil {
				return
			}
			defer func() { _ = end.Close() }()
			join(conn.(*net.TCPConn), end.(*net.TCPConn))
		})
	}
}

// join carries what each says to the other until both have ended, or one is broken.
func join(a, b *net.TCPConn) {
	var both sync.WaitGroup
	carry := func(dst, src *net.TCPConn) {
		if _, err := io.Copy(dst, src); err != nil {
			_ = dst.Close()
			_ = src.Close()
		}
		_ = dst.CloseWrite()
	}
	both.Go(func() { carry(a, b) })
	both.Go(func() { carry(b, a) })
	both.Wait()
}

// owner is the server that made a connection.
func (w *wires) owner(conn net.Conn) (string, error) {
	socket, err := socketOf(conn.RemoteAddr().(*net.TCPAddr), conn.LocalAddr().(*net.TCPAddr))
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, pid := range w.pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
		files, _ := os.ReadDir(dir) // of one that has ended there are none
		for _, f := range files {
			if link, err := os.Readlink(dir + f.Name()); err == nil && link == socket {
				return id, nil
			}
		}
	}
	return "", fmt.Errorf("%s is no server's", socket)
}

// socketOf is the one at the near end of a connection, as links in /proc name it.
func socketOf(near, far *net.TCPAddr) (string, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	for row := range strings.Lines(string(table)) {
		fields := strings.Fields(row)
		if len(fields) > 9 && fields[1] == inTable(near) && fields[2] == inTable(far) {
			return "socket:[" + fields[9] + "]", nil
		}
	}
	return "", fmt.Errorf("nobody connected %v to %v", near, far)
}

// inTable is how an IPv4 address stands there: as the kernel has it in memory, and the port.
func inTable(a *net.TCPAddr) string {
	ip := a.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
}
