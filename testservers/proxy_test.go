package main

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// echo is a server that says everything back, then says goodbye.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(conn, conn)
				_, _ = conn.Write([]byte("goodbye"))
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func proxyTo(t *testing.T, server string) *proxy {
	t.Helper()
	p, err := newProxy(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dialProxy(t *testing.T, p *proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp4", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// A cut in the middle of a stream, healed and cut again, loses, repeats and
// reorders nothing, and the end of the stream comes last.
func TestProxyLosesNothing(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	p := proxyTo(t, echo(t))
	conn := dialProxy(t, p)
	sent := make([]byte, 4<<20)
	rand.New(rand.NewSource(1)).Read(sent)

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i, direction := range []string{"to-server", "to-client", "both", "to-client"} {
			if err := p.cut(direction); err != nil {
				t.Error(err)
			}
			part := sent[i*len(sent)/4 : (i+1)*len(sent)/4]
			half := len(part) / 2
			// The first bytes fit into the kernel's buffers, the rest need the heal.
			if _, err := conn.Write(part[:1000]); err != nil {
				t.Error(err)
			}
			if err := p.heal(); err != nil {
				t.Error(err)
			}
			for _, rest := range [][]byte{part[1000:half], part[half:]} {
				if _, err := conn.Write(rest); err != nil {
					t.Error(err)
				}
			}
		}
		if err := conn.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	heard, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Concat(sent, []byte("goodbye")); !bytes.Equal(heard, want) {
		t.Errorf("heard %d bytes, want the %d sent and said, in order", len(heard), len(want))
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	p := proxyTo(t, echo(t))
	conn := dialProxy(t, p)
	if err := p.cut("both"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is as good as once
		if err := p.refuse(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := conn.Read(make([]byte, 9)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, %v from a connection that was reset", n, err)
	}
	if late, err := net.Dial("tcp4", p.addr); err == nil {
		_ = late.Close()
		t.Error("a connection was made that was to be refused")
	}
	if err := p.heal(); err != nil {
		t.Fatal(err)
	}
	again := dialProxy(t, p)
	if _, err := again.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, 5)
	if _, err := io.ReadFull(again, heard); err != nil || string(heard) != "hello" {
		t.Errorf("heard %q, %v after the heal", heard, err)
	}
}

func TestProxyOfADownServer(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	p := proxyTo(t, (&server{port: port}).addr())
	conn, err := net.Dial("tcp4", p.addr) // the reset may come as early as this
	if err == nil {
		_, err = conn.Read(make([]byte, 9))
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}
