package remotestore

import (
	"bufio"
	"context"
	"net"
	"testing"

	"baton/storetest/drill"
)

// An answer that is there when the time for it is over is read: a process that stood still has not been
// left without one. While there is none, the exchange ends.
func TestInterruptLeavesWhatHasArrived(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	to := &plainServer{address: l.Addr().String()}
	for range drill.Tries(t) {
		d := &direct{dial: (&net.Dialer{}).DialContext}
		c, err := d.connect(context.Background(), to)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Write([]byte("an answer\n")); err != nil {
			t.Fatal(err)
		}
		c.left = maxHead
		c.interrupt()
		answer, err := bufio.NewReader(c).ReadString('\n')
		_, more := c.Read(make([]byte, 1))
		_, _ = c.Close(), server.Close()
		if more == nil {
			t.Fatal("read more than there is")
		}
		if err == nil && answer == "an answer\n" {
			return
		}
		t.Log(err) // held up for longer than there is time
	}
}
