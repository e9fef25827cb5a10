package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"baton/internal/fleet"
	"baton/internal/testserver"
)

// TestPeersTakeOver kills the leader of three nodes that elect among
// themselves, as processes with a resource beside them, again and again, and reports how long it
// takes from the kill until the successor's first write is accepted. BATON_TEST_KILLS says how often, and
// BATON_TEST_ELECTION_TIMEOUT replaces that of the backend.
func TestPeersTakeOver(t *testing.T) {
	kills := 2
	if s := os.Getenv("BATON_TEST_KILLS"); s != "" {
		var err error
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	programs := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", programs, "baton/cmd/node", "baton/cmd/fenced").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, backend := range []string{raftBackend, bullyBackend} {
		t.Run(backend, func(t *testing.T) { takeOver(t, programs, backend, kills) })
	}
}

func takeOver(t *testing.T, programs, backend string, kills int) {
	f := &peerFleet{t: t, dir: t.TempDir(), programs: programs, backend: backend, nodes: map[string]*exec.Cmd{}}
	address := f.spawn("fenced", "-listen", "127.0.0.1:0", "-db", filepath.Join(f.dir, "fenced.db"))
	f.resource = "http://" + address
	var peers, ids []string
	for i := range 3 {
		id := fmt.Sprintf("n%d", i+1)
		ids = append(ids, id)
		peers = append(peers, id+"="+testserver.FreeAddress(t))
	}
	f.peers = strings.Join(peers, ",")
	for _, id := range ids {
		f.start(id)
	}
	f.awaitWrite("a first write", func(e fleet.Event) bool { return backend != bullyBackend || e.Node == "n3" })
	var took []time.Duration
	for range kills {
		current := f.newest()
		leader, killed := current.Node, fleet.Now()
		if err := f.nodes[leader].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = f.nodes[leader].Wait() // it was killed
		next := f.awaitWrite("a write of a successor", func(e fleet.Event) bool { return e.Term > current.Term })
		if next.Node == leader {
			t.Errorf("%s writes in term %d, and it is dead", leader, next.Term)
		}
		took = append(took, time.Duration(next.At-killed))
		back := f.start(leader)
		if backend == bullyBackend { // which had the highest id, and takes over again
			f.awaitWrite("a write of the bully", func(e fleet.Event) bool { return e.Term > next.Term && e.Node == leader })
		}
		f.poll(leader+" takes part again", func() bool {
			s, err := fleet.GetStatus(t.Context(), http.DefaultClient, back)
			return err == nil && s.Role != fleet.RoleCandidate
		})
	}
	slices.Sort(took)
	t.Logf("%s: from kill -9 to the successor's first accepted write, %d kills: p50 %v, max %v; all %v; the last term was %d",
		backend, kills, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), took, f.newest().Term)
	f.audit()
}

// peerFleet are processes.
type peerFleet struct {
	t                                       *testing.T
	dir, programs, backend, peers, resource string
	nodes                                   map[string]*exec.Cmd
}

// spawn starts a program and returns the address that it says it serves on.
func (f *peerFleet) spawn(name string, args ...string) string {
	f.t.Helper()
	cmd := exec.Command(filepath.Join(f.programs, name), args...)
	log, err := os.OpenFile(filepath.Join(f.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
		if f.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			f.t.Logf("%s said:\n%s", name, text)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
	if i := slices.Index(args, "-node-id"); i >= 0 {
		f.nodes[args[i+1]] = cmd
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "http://")
	return address
}

func (f *peerFleet) start(id string) (address string) {
	f.t.Helper()
	args := []string{
		"-node-id", id, "-backend", f.backend, "-peers", f.peers, "-data", filepath.Join(f.dir, id+".raft"),
		"-resource", f.resource, "-http", "127.0.0.1:0", "-events", f.events(id), "-tick", "50ms",
	}
	if timeout := os.Getenv("BATON_TEST_ELECTION_TIMEOUT"); timeout != "" {
		args = append(args, "-election-timeout", timeout)
	}
	return f.spawn("node", args...)
}

func (f *peerFleet) events(id string) string { return filepath.Join(f.dir, id+".events") }

// awaitWrite returns the first accepted write that is wanted.
func (f *peerFleet) awaitWrite(what string, wanted func(fleet.Event) bool) fleet.Event {
	f.t.Helper()
	var found fleet.Event
	f.poll(what, func() bool {
		for id := range f.nodes {
			events, err := fleet.ReadEvents(f.events(id))
			if err != nil {
				continue // not there yet
			}
			for _, e := range events {
				if e.Type == fleet.WriteAccepted && wanted(e) && (found.At == 0 || e.At < found.At) {
					found = e
				}
			}
		}
		return found.At != 0
	})
	return found
}

// newest returns the write of the newest term, when it is one of just now. Of bullies
// it is the highest that leads, though another may when that one was held up for a while.
func (f *peerFleet) newest() (found fleet.Event) {
	f.t.Helper()
	f.poll("a leader that writes", func() bool {
		now := fleet.Now()
		f.awaitWrite("any write", func(e fleet.Event) bool {
			if e.Term > found.Term || e.Term == found.Term && e.At > found.At {
				found = e
			}
			return true
		})
		return found.At > now-int64(100*time.Millisecond) && (f.backend != bullyBackend || found.Node == "n3")
	})
	return found
}

func (f *peerFleet) poll(what string, done func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("a minute, and not yet: %s", what)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-f.t.Context().Done():
		}
	}
}

// audit asks the resource whether it accepted anything that it should not have.
func (f *peerFleet) audit() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.resource+"/v1/audit", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	var audit struct {
		OK     bool
		Writes int
	}
	if err := json.NewDecoder(resp.Body).Decode(&audit); err != nil || !audit.OK || audit.Writes == 0 {
		f.t.Errorf("the resource's audit: %+v, %v", audit, err)
	}
}

// The hosts of a fleet file's store are those of its nodes, and via is how one of them reaches the others.
func TestPeersOfAFleetFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.json")
	text := `{"group": "g", "backend": "raft", "store": "raft://127.0.0.1:7701,127.0.0.1:7702", "resource": "http://127.0.0.1:7410", "nodes": [
		{"id": "n1", "http": "127.0.0.1:7501", "via": ["127.0.0.1:7611", "127.0.0.1:7612"]}, {"id": "n2", "http": "127.0.0.1:7502"}]}`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-fleet", path, "-node-id", "n1", "-election-timeout", "150ms"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%v %v %s %v", o.peer.peers, o.peer.viaOf, filepath.Base(o.peer.data), o.ttl)
	if want := "map[n1:127.0.0.1:7701 n2:127.0.0.1:7702] map[n2:127.0.0.1:7612] n1.raft 300ms"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for args, want := range map[string]string{
		"-backend raft -peers n1=127.0.0.1:1 -lease-ttl 3s -renew-interval 1s":      "[-lease-ttl -renew-interval]",
		"-backend bully -peers n1=127.0.0.1:1 -election-timeout 1s":                 "[]",
		"-backend baton -store http://127.0.0.1:1 -lease-ttl 3s -renew-interval 1s": "[]",
	} {
		o, err := parse(append(strings.Fields(args), "-node-id", "n1"), io.Discard)
		if err != nil || fmt.Sprint(o.idle) != want {
			t.Errorf("%s: %v, %v have no say: want %s", args, err, o.idle, want)
		}
	}
	for _, args := range []string{
		"-node-id n1 -backend raft", "-node-id n3 -backend raft -peers n1=127.0.0.1:1", "-node-id n1 -backend bully -peers n1",
		"-node-id n1 -backend raft -peers n1=127.0.0.1:1 -unsafe-trust receipt",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: no complaint", args)
		}
	}
}
