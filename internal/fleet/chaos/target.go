package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"baton/internal/fleet"
)

// errNoLeader: nobody in the fleet says that it leads.
var errNoLeader = errors.New("no node of the fleet says that it leads")

// errUndone: who led a moment ago does not any more.
var errUndone = errors.New("nothing was done")

// askTimeout is how long a node may take to say what it is.
const askTimeout = time.Second

// findLeader asks all nodes. If several claim to lead, it is the one with the
// highest token; the others come after it.
func findLeader(ctx context.Context, f *fleet.File, hc *http.Client) (leader fleet.Node, claims []fleet.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	statuses := f.Statuses(ctx, hc)
	claims = fleet.Claims(statuses)
	if len(claims) == 0 {
		return fleet.Node{}, nil, fmt.Errorf("%w: %d of %d answered", errNoLeader, len(statuses), len(f.Nodes))
	}
	leader, _ = f.Node(claims[0].NodeID)
	return leader, claims, nil
}

// process is the process of a node, checked to be that.
type process struct {
	*os.Process
}

// findProcess finds the process that the fleet file names for a node. It must be
// the one that answers for the node, and must have been started as that node:
// no other is ever touched.
//
// The status is a fresh one.
func findProcess(f *fleet.File, n fleet.Node, s fleet.Status) (*process, error) {
	pid, err := f.PIDOf(n)
	if err != nil {
		return nil, err
	}
	// Taken before the checks, and bound to the process and not to its number:
	// what is checked is what is signalled.
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("find process %d of node %s: %w", pid, n.ID, err)
	}
	if s.NodeID != n.ID || s.PID != pid {
		return nil, fmt.Errorf("process %d is not touched: the fleet file says it is node %s, and the node at %s says it is %s in process %d", pid, n.ID, n.HTTP, s.NodeID, s.PID)
	}
	if !fleet.StartedAs(pid, n.ID) {
		return nil, fmt.Errorf("process %d is not touched: it was not started as node %s", pid, n.ID)
	}
	return &process{p}, nil
}

func (p *process) signal(s syscall.Signal) error {
	if err := p.Signal(s); err != nil {
		return fmt.Errorf("send %v to process %d: %w", s, p.Pid, err)
	}
	return nil
}
