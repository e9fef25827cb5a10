package fleet

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Settled returns the leader of a fleet that is at rest: one node says that it leads, and
// acts, and all others that should run answer and know it.
//
// A node should run unless it is known to have ended: its process is gone, or its log of
// events says so. One that there is no trace of is still to come.
func (f *File) Settled(statuses map[string]Status) (leader Status, ok bool) {
	claims := Claims(statuses)
	if len(claims) != 1 || !claims[0].Acting {
		return Status{}, false
	}
	leader = claims[0]
	for _, n := range f.Nodes {
		s, answered := statuses[n.ID]
		if answered && (s.Leader == nil || s.Leader.NodeID != leader.NodeID) || !answered && !f.ended(n) {
			return Status{}, false
		}
	}
	return leader, true
}

func (f *File) ended(n Node) bool {
	pid, err := f.PIDOf(n)
	switch {
	case err == nil:
		return !StartedAs(pid, n.ID)
	case !errors.Is(err, fs.ErrNotExist) || n.Events == "":
		return false
	}
	// It takes its PID file away when it ends by itself.
	events, err := ReadEvents(f.Path(n.Events))
	return err == nil && len(events) > 0 && events[len(events)-1].Type == Stopped
}

// StartedAs reports whether a process runs whose command line has the -node-id of this node.
// Where the system does not show command lines, any process will do.
func StartedAs(pid int, id string) bool {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		return runs(pid)
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	var args []string
	for arg := range bytes.SplitSeq(bytes.TrimRight(text, "\x00"), []byte{0}) {
		args = append(args, strings.Replace(string(arg), "--", "-", 1))
	}
	if slices.Contains(args, "-node-id="+id) {
		return true
	}
	i := slices.Index(args, "-node-id")
	return i >= 0 && i+1 < len(args) && args[i+1] == id
}

func runs(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	return p.Signal(syscall.Signal(0)) == nil
}
