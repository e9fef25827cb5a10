package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
)

// portsUsed keeps two arms of one process from choosing the same port.
var (
	portsMu   sync.Mutex
	portsUsed = map[string]bool{}
)

// freePorts are addresses on loopback that nobody listens at, none of them
// handed out before. They are below those that the system gives to whoever
// connects, lest one of these sits on a port while its process is down.
func freePorts(n int) ([]string, error) {
	const lowest, highest = 15000, 30000
	portsMu.Lock()
	defer portsMu.Unlock()
	var (
		found []string
		held  []net.Listener
		err   error
	)
	for range 100 * n {
		if len(found) == n {
			break
		}
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest))
		l, failed := net.Listen("tcp", address)
		if errors.Is(failed, syscall.EADDRINUSE) || failed == nil && portsUsed[address] {
			if l != nil {
				held = append(held, l)
			}
			continue
		}
		if failed != nil {
			err = failed
			break
		}
		held = append(held, l)
		portsUsed[address] = true
		found = append(found, address)
	}
	for _, l := range held {
		err = errors.Join(err, l.Close())
	}
	if err == nil && len(found) < n {
		err = fmt.Errorf("find %d free ports: there are %d", n, len(found))
	}
	return slices.Clip(found), err
}
