package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/api"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
	"baton/internal/fleet/chaos"
	"baton/internal/fleet/proxy"
	"baton/internal/testprocess"
	"baton/internal/testserver"
)

const (
	// patience is far beyond what anything here takes.
	patience = testprocess.Patience
	ttl      = 3 * time.Second
	// noLeader is the exit status of a command that did nothing, because nobody said that it leads.
	noLeader = 3
)

func TestMain(m *testing.M) {
	os.Exit(testprocess.Main(m, http.DefaultClient.CloseIdleConnections, "baton/cmd/baton", "baton/cmd/fenced", "baton/cmd/node", "baton/cmd/chaos"))
}

// start starts a program of the fleet and returns when it has said its first line on
// stdout. It is killed at the end of the test if it has not ended.
func start(t *testing.T, name string, args ...string) *testprocess.Process {
	t.Helper()
	p := testprocess.Start(t, exec.Command(testprocess.Path(name), args...))
	t.Cleanup(func() {
		if strings.Contains(p.Said(), "DATA RACE") { // built with GOFLAGS=-race
			t.Errorf("%s races", name)
		}
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), p.Said())
		}
	})
	p.Line()
	return p
}

// testFleet is three nodes, a Baton server, the protected resource, and a
// proxy between nodes and server.
type testFleet struct {
	t         *testing.T
	file      *fleet.File
	path      string
	nodeFlags []string
	nodes     map[string]*testprocess.Process
	fenced    *testprocess.Process
	fencedAs  []string // its flags
	resource  *fencedclient.Client
}

// startFleet starts a fleet that elects with the backend at this URL, and with a
// Baton server of its own if there is none.
func startFleet(t *testing.T, store string, fencedFlags, nodeFlags []string) *testFleet {
	t.Helper()
	dir := t.TempDir()
	var free [9]string
	for i := range free {
		free[i] = testserver.FreeAddress(t)
	}
	f := &testFleet{t: t, path: filepath.Join(dir, "fleet.json"), nodeFlags: nodeFlags, nodes: map[string]*testprocess.Process{}}
	f.file = &fleet.File{Group: "singleton", Backend: "baton", Store: "http://" + free[0], Resource: "http://" + free[1], Proxy: free[2]}
	for i := range 3 {
		id := fmt.Sprintf("n%d", i+1)
		f.file.Nodes = append(f.file.Nodes, fleet.Node{ID: id, HTTP: free[3+i], Via: []string{free[6+i]}, PIDFile: id + ".pid", Events: id + ".events"})
	}
	if store != "" {
		f.file.Store, f.file.Backend = store, strings.Split(store, "://")[0]
	}
	if err := f.file.Save(f.path); err != nil {
		t.Fatal(err)
	}
	if store == "" {
		start(t, "baton", "server", "--store", "memory", "--http", free[0])
	}
	f.fencedAs = append([]string{"-listen", free[1], "-db", filepath.Join(dir, "fenced.db")}, fencedFlags...)
	f.fenced = start(t, "fenced", f.fencedAs...)
	start(t, "chaos", "proxy", "--fleet", f.path)
	for _, n := range f.file.Nodes {
		f.startNode(n.ID)
	}
	hc := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(hc.CloseIdleConnections)
	var err error
	if f.resource, err = fencedclient.New(f.file.Resource, hc); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *testFleet) startNode(id string) {
	f.t.Helper()
	f.nodes[id] = start(f.t, "node", append([]string{"-fleet", f.path, "-node-id", id, "-lease-ttl", ttl.String(), "-tick", "100ms"}, f.nodeFlags...)...)
}

// eventually polls until what is wanted is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	testprocess.Eventually(t, what, so)
}

// revive starts again, as a supervisor would, what ended itself because it had stood still for too long.
func (f *testFleet) revive() {
	f.t.Helper()
	for id, p := range f.nodes {
		select {
		case <-p.Ended:
			if p.Cmd.ProcessState.ExitCode() == baton.ExitOverrun {
				f.t.Logf("%s overran its lease, and is started again", id)
				f.startNode(id)
			}
		default:
		}
	}
}

func (f *testFleet) statuses() map[string]fleet.Status {
	f.t.Helper()
	f.revive()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	return f.file.Statuses(ctx, http.DefaultClient)
}

// settled waits until all nodes that run answer, one acts, and the others follow it.
func (f *testFleet) settled() fleet.Status {
	f.t.Helper()
	var leader fleet.Status
	eventually(f.t, "one node acts and the others follow it", func() bool {
		var ok bool
		leader, ok = f.file.Settled(f.statuses())
		return ok
	})
	return leader
}

// chaos runs the command and returns what it reports.
func (f *testFleet) chaos(args ...string) chaos.Report {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	for tries := 1; ; tries++ {
		stdout.Reset()
		stderr.Reset()
		cmd := exec.CommandContext(ctx, testprocess.Path("chaos"), append(args, "--fleet", f.path, "-o", "json")...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if err == nil {
			break
		}
		if cmd.ProcessState.ExitCode() != noLeader || tries == 5 {
			f.t.Fatalf("chaos %q: %v\n%s%s", args, err, &stdout, &stderr)
		}
		f.settled() // the machine stood still: nobody answered within a second, or the lease was over
	}
	var r chaos.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		f.t.Fatalf("chaos %q: %v\n%s", args, err, &stdout)
	}
	if len(r.AlsoClaimed) > 0 {
		f.t.Errorf("chaos %q: several said that they lead: %+v", args, r)
	}
	return r
}

// begin starts the command and returns when it has said what it did.
func (f *testFleet) begin(args ...string) *testprocess.Process {
	f.t.Helper()
	for tries := 1; ; tries++ {
		p := testprocess.Start(f.t, exec.Command(testprocess.Path("chaos"), append(args, "--fleet", f.path)...))
		select {
		case _, ok := <-p.Lines:
			if ok {
				return p
			}
		case <-time.After(patience):
			f.t.Fatalf("chaos %q says nothing: %s", args, p.Errors())
		}
		if status := p.Wait(); status != noLeader || tries == enough {
			f.t.Fatalf("chaos %q: exit status %d: %s", args, status, p.Said())
		}
		f.settled()
	}
}

func (f *testFleet) cable() *proxy.Client {
	return &proxy.Client{Address: f.file.Proxy, HTTP: http.DefaultClient}
}

// disturb puts a fault between a node and its backend.
func (f *testFleet) disturb(node fleet.Status, fault proxy.Fault) {
	f.t.Helper()
	if err := f.cable().Set(f.t.Context(), node.NodeID, fault); err != nil {
		f.t.Fatal(err)
	}
}

// heal takes it away.
func (f *testFleet) heal(node fleet.Status) {
	f.t.Helper()
	if err := f.cable().Heal(f.t.Context(), node.NodeID); err != nil {
		f.t.Error(err)
	}
}

func (f *testFleet) events(node string) []fleet.Event {
	f.t.Helper()
	n, _ := f.file.Node(node)
	events, err := fleet.ReadEvents(f.file.Path(n.Events))
	if err != nil {
		f.t.Fatal(err)
	}
	return events
}

// event finds the first event of a type that a node logged under a term.
func (f *testFleet) event(node string, what fleet.EventType, term uint64) (fleet.Event, bool) {
	for _, e := range f.events(node) {
		if e.Type == what && uint64(e.Term) == term {
			return e, true
		}
	}
	return fleet.Event{}, false
}

// ended is when a node's work under a term had ended: as it says itself, or, of one that was held up for so long that
// it ended its process, when that was started again.
func (f *testFleet) ended(node string, term baton.Term) (at int64, ok bool) {
	overran := false
	for _, e := range f.events(node) {
		overran = overran || e.Type == fleet.Overrun && e.Term == term
		if e.Type == fleet.ActingEnded && e.Term == term || overran && e.Type == fleet.Started {
			return e.At, true
		}
	}
	return 0, false
}

// overlap waits until the old leader's work has ended and the new one's has
// begun, and returns for how long both went on.
func (f *testFleet) overlap(old, successor chaos.Leader) time.Duration {
	f.t.Helper()
	var ended int64
	var began fleet.Event
	eventually(f.t, "the old leader's work ends and the new one's begins", func() bool {
		f.revive()
		var ok1, ok2 bool
		ended, ok1 = f.ended(old.NodeID, old.FenceToken)
		began, ok2 = f.event(successor.NodeID, fleet.ActingBegan, uint64(successor.FenceToken))
		return ok1 && ok2
	})
	return time.Duration(ended - began.At)
}

// apart reports whether the old leader's work had ended when the new one's began. If it had not, the
// old leader must have found by itself that it went on for longer than it trusted its lease, as one does
// that stood still meanwhile: one that trusts its lease for too long finds nothing, and that is an error.
func (f *testFleet) apart(old, successor chaos.Leader) bool {
	f.t.Helper()
	o := f.overlap(old, successor)
	if o < 0 {
		return true
	}
	eventually(f.t, fmt.Sprintf("two leaders acted at once, %+v and %+v, for %v, and the first one knows why", old, successor, o), func() bool {
		_, ok := f.event(old.NodeID, fleet.Overrun, uint64(old.FenceToken))
		return ok
	})
	return false
}

func (f *testFleet) audit() fencedclient.Audit {
	f.t.Helper()
	a, err := f.resource.Audit(f.t.Context(), "")
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

// customers ask all nodes in turn for numbers until stopped. What they get must rise
// for each of them, and be nobody else's.
type customers struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	given map[int64]fleet.Number
	wrong []string
}

func (f *testFleet) customers(count int) *customers {
	ctx, cancel := context.WithCancel(context.Background())
	c := &customers{stop: cancel, given: map[int64]fleet.Number{}}
	transport := &http.Transport{MaxIdleConnsPerHost: count}
	hc := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for i := range count {
		c.wg.Go(func() {
			var last fleet.Number
			for n := i; ctx.Err() == nil; n++ {
				number, err := fleet.Next(ctx, hc, f.file.Nodes[n%len(f.file.Nodes)].HTTP)
				if err != nil {
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Millisecond):
					}
					continue
				}
				c.got(last, number)
				last = number
			}
		})
	}
	f.t.Cleanup(func() {
		cancel()
		c.wg.Wait()
		transport.CloseIdleConnections()
	})
	return c
}

func (c *customers) got(last, n fleet.Number) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Seq <= last.Seq || n.Token < last.Token {
		c.wrong = append(c.wrong, fmt.Sprintf("%+v after %+v", n, last))
	}
	if other, twice := c.given[n.Seq]; twice {
		c.wrong = append(c.wrong, fmt.Sprintf("%+v and %+v", n, other))
	}
	c.given[n.Seq] = n
}

// under counts the numbers that were given out under a token.
func (c *customers) under(token uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for _, n := range c.given {
		if uint64(n.Token) == token {
			count++
		}
	}
	return count
}

// whyEnded is the reason for which the server says that a term ended.
func (f *testFleet) whyEnded(term uint64) string {
	f.t.Helper()
	var history api.HistoryResponse
	f.get(f.file.Store+"/v1/groups/"+f.file.Group+"/history", func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&history)
	})
	for _, past := range history.Terms {
		if past.Term == term {
			return past.Reason
		}
	}
	return fmt.Sprintf("it is not in the history: %+v", history)
}

// counter is one of a node's metrics.
func (f *testFleet) counter(node, name string) (count float64) {
	f.t.Helper()
	n, _ := f.file.Node(node)
	f.get("http://"+n.HTTP+"/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				var err error
				count, err = strconv.ParseFloat(text, 64)
				return err
			}
		}
		return fmt.Errorf("there is no %s", name)
	})
	return count
}

func (f *testFleet) get(url string, read func(body io.Reader) error) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := read(resp.Body); err != nil {
		f.t.Fatalf("GET %s: %v", url, err)
	}
}
