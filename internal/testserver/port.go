package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// FreeAddress is one on loopback that nobody listens on. No outgoing connection is given its
// port, and nobody in this process gets it a second time, so it is still free where a test lets go of it for a while.
//
// It takes testing.TB, and what storetest hands to checks.
func FreeAddress(t interface {
	Helper()
	Fatalf(format string, args ...any)
},
) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// given are the ports that this process has handed out.
var given = struct {
	mu    sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePort is below the ports that the kernel hands out to outgoing connections.
func freePort() (int, error) {
	const lowest, highest = 15000, 30000
	given.mu.Lock()
	defer given.mu.Unlock()
	for range 100 {
		port := lowest + rand.IntN(highest-lowest)
		if given.ports[port] {
			continue
		}
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			given.ports[port] = true
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d", lowest, highest)
}
