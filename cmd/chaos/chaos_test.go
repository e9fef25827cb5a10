package main_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton"
	"baton/internal/fleet"
	"baton/internal/fleet/chaos"
	"baton/internal/fleet/proxy"
	"baton/internal/testprocess"
	"baton/internal/testserver"
)

// A fleet is harmed in every way, one after the other, while customers ask for
// numbers: there is always a next leader, and the work stays right.
func TestFleetSurvivesChaos(t *testing.T) {
	t.Run("baton", func(t *testing.T) {
		t.Parallel()
		f := startFleet(t, "", nil, []string{"-clock-skew=-200ms"})
		ended := survivesChaos(t, f)
		if why := f.whyEnded(uint64(ended)); why != "RESIGNED" {
			t.Errorf("a leader that was asked to end: %s", why)
		}
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		server := testserver.Start(t, testserver.Etcd)
		_, host, _ := strings.Cut(server.Direct, "://")
		survivesChaos(t, startFleet(t, "etcd://"+host, nil, []string{"-clock-skew=200ms"}))
	})
}

// cutOff is longer than a lease by more than a machine stands still.
const cutOff = "--secs=7"

// survivesChaos returns the term that was handed over in the end.
func survivesChaos(t *testing.T, f *testFleet) baton.Term {
	customers := f.customers(4)
	served := func() {
		t.Helper()
		eventually(t, "customers get numbers of a leader that all follow", func() bool {
			leader, ok := f.file.Settled(f.statuses())
			return ok && customers.under(uint64(leader.FenceToken)) > 20
		})
	}
	served()

	// settle is what must be so after each harm.
	settle := func(r chaos.Report) {
		t.Helper()
		if r.Successor == nil || r.Successor.FenceToken <= r.Target.FenceToken {
			t.Fatalf("%s: no new leader with a higher token: %+v", r.Action, r)
		}
		served()
		if a := f.audit(); !a.OK || a.Writes == 0 {
			t.Fatalf("%s: the resource let in what it must not: %+v", r.Action, a)
		}
	}

	// harm does it again if it shows too little: where the machine stands still in its midst, whoever takes over, or whoever
	// looks, may be too late. What must never happen is an error the first time.
	harm := func(shown func(r chaos.Report) bool, args ...string) chaos.Report {
		t.Helper()
		for tries := 1; ; tries++ {
			r := f.chaos(args...)
			settle(r)
			if shown(r) || tries == 3 {
				return r
			}
			t.Logf("again, since it shows too little: %+v", r)
		}
	}

	killed := f.chaos("kill-leader")
	f.startNode(killed.Target.NodeID)
	settle(killed)

	paused := harm(func(r chaos.Report) bool { return r.Successor.AfterMS < *r.HealedAfterMS },
		"gc-pause-leader", "--ms="+strconv.FormatInt((ttl+3*time.Second).Milliseconds(), 10))
	if paused.Successor.AfterMS >= *paused.HealedAfterMS {
		t.Errorf("nobody took over while the leader was frozen: %+v", paused)
	}
	if paused.Stopped == nil || paused.Rejoined == nil {
		t.Errorf("the woken leader did not stop, or did not come back: %+v", paused)
	}

	for _, direction := range []proxy.Direction{proxy.Both, proxy.ToBackend, proxy.FromBackend} {
		cut := harm(func(r chaos.Report) bool {
			if o := f.overlap(r.Target, r.Successor.Leader); o >= 0 {
				t.Errorf("%s: two leaders acted at once, for %v: %+v", direction, o, r)
			}
			return r.Stopped != nil && r.Stopped.AfterMS < *r.HealedAfterMS
		}, "partition-leader", cutOff, "--direction="+string(direction))
		if cut.Stopped == nil || cut.Stopped.AfterMS >= *cut.HealedAfterMS {
			t.Errorf("%s: the leader did not stop by itself: %+v", direction, cut)
		}
		if cut.Rejoined == nil || cut.Rejoined.Role != string(fleet.RoleFollower) {
			t.Errorf("%s: the old leader did not come back as a follower: %+v", direction, cut)
		}
	}

	handed := f.chaos("resign-leader")
	settle(handed)
	if handed.Successor.NodeID == handed.Target.NodeID {
		// Those who were called first may have been held up. Not twice.
		if handed = f.chaos("resign-leader"); handed.Successor.NodeID == handed.Target.NodeID {
			t.Errorf("a leader that handed over leads again at once, twice in a row: %+v", handed)
		}
		settle(handed)
	}
	if o := f.overlap(handed.Target, handed.Successor.Leader); o >= 0 {
		t.Errorf("handed over on demand: two leaders acted at once, for %v", o)
	}

	leader := f.settled()
	f.nodes[leader.NodeID].Signal(syscall.SIGTERM)
	if status := f.nodes[leader.NodeID].Wait(); status != 0 {
		t.Errorf("after SIGTERM the leader's exit status is %d", status)
	}
	f.startNode(leader.NodeID)
	successor := f.settled()
	old := chaos.Leader{NodeID: leader.NodeID, FenceToken: leader.FenceToken}
	if o := f.overlap(old, chaos.Leader{NodeID: successor.NodeID, FenceToken: successor.FenceToken}); o >= 0 {
		t.Errorf("handover: two leaders acted at once, for %v", o)
	}
	served()

	customers.stop()
	customers.wg.Wait()
	if len(customers.wrong) > 0 {
		t.Errorf("numbers that repeat or fall: %q", customers.wrong)
	}
	if a := f.audit(); !a.OK {
		t.Errorf("the resource let in what it must not: %+v", a)
	}
	return leader.FenceToken
}

// A leader that does not stop when its lease ends is refused by the resource;
// a resource that does not look is damaged. So it is the fence that protects the
// data, and it is seen when it is gone.
func TestOnlyTheFenceStopsALeaderThatGoesOn(t *testing.T) {
	for _, fencing := range []string{"on", "off"} {
		t.Run("fencing "+fencing, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, "", []string{"-fencing=" + fencing}, []string{"-unsafe-linger=1m"})
			f.settled()
			f.customers(4)
			cut := f.chaos("partition-leader", cutOff)
			token := "/" + strconv.FormatUint(uint64(cut.Target.FenceToken), 10) + "/"
			switch fencing {
			case "on":
				eventually(t, "a write of the old leader is refused", func() bool { return f.statuses()[cut.Target.NodeID].WritesRefused > 0 })
				eventually(t, "the refusal is logged", func() bool {
					e, ok := f.event(cut.Target.NodeID, fleet.WriteRefused, uint64(cut.Target.FenceToken))
					return ok && e.Reason == "stale"
				})
				eventually(t, "the resource names the token "+token+" it refused", func() bool {
					said := f.fenced.Said()
					return strings.Contains(said, "write rejected") && strings.Contains(said, token)
				})
				if a := f.audit(); !a.OK {
					t.Errorf("with fencing: %+v", a)
				}
			case "off":
				eventually(t, "the damage shows", func() bool {
					a := f.audit()
					return !a.OK && a.TermsFell > 0 && a.SeqsFell > 0 && a.Duplicates > 0
				})
			}
			if said := f.nodes["n1"].Said(); !strings.Contains(said, "for experiments only") {
				t.Errorf("the node does not warn:\n%s", said)
			}
		})
	}
}

// Answers of the backend take long, and then no request gets there any more. Trusted
// from before the request was sent, its lease ends in time; trusted from the
// receipt, it does not, and the log of events shows it.
func TestTrustCountsFromTheSend(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags []string
		both  bool // act at once
	}{
		{"from the send", nil, false},
		{"from the receipt", []string{"-unsafe-trust=receipt"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, "", nil, tt.flags)
			overlap := cutOffWhileSlow(f)
			// A successor that is held up comes too late to meet a leader that goes on too long.
			for tries := 1; tt.both && overlap <= 0 && tries < 5; tries++ {
				overlap = cutOffWhileSlow(f)
			}
			if both := overlap > 0; both != tt.both {
				t.Errorf("two leaders at once: %t (%v), want %t", both, overlap, tt.both)
			}
			if a := f.audit(); !a.OK {
				t.Errorf("the resource let in what it must not: %+v", a)
			}
		})
	}
}

// cutOffWhileSlow delays the backend's answers, then lets no request of the leader through, and
// returns for how long it and its successor acted at once.
func cutOffWhileSlow(f *testFleet) time.Duration {
	f.t.Helper()
	leader := slowLeader(f)
	f.disturb(leader, proxy.Fault{ToBackend: proxy.Trouble{Cut: true}, FromBackend: slow})
	var successor fleet.Status
	eventually(f.t, "another leads", func() bool {
		claims := fleet.Claims(f.statuses())
		if len(claims) > 0 {
			successor = claims[0]
		}
		return successor.FenceToken > leader.FenceToken
	})
	defer f.heal(leader)
	return f.overlap(chaos.Leader{NodeID: leader.NodeID, FenceToken: leader.FenceToken},
		chaos.Leader{NodeID: successor.NodeID, FenceToken: successor.FenceToken})
}

// slow is what delays all that is sent one way.
var slow = proxy.Trouble{DelayMS: 500}

// slowLeader delays the backend's answers to the leader, and returns it when it has renewed a few times all the same.
func slowLeader(f *testFleet) fleet.Status {
	f.t.Helper()
	for range 5 {
		leader := f.settled()
		f.disturb(leader, slow.In(proxy.FromBackend))
		before := f.counter(leader.NodeID, "baton_node_renewals_total")
		unseated := false // by a machine that stood still
		eventually(f.t, "renewals come through slowly", func() bool {
			s, answered := f.statuses()[leader.NodeID]
			unseated = answered && s.FenceToken != leader.FenceToken
			return unseated || f.counter(leader.NodeID, "baton_node_renewals_total") > before+3
		})
		if !unseated {
			return leader
		}
		f.heal(leader)
	}
	f.t.Fatal("no leader keeps its lease while answers take long")
	return fleet.Status{}
}

// While the resource is gone nobody gets a number, and nobody loses the lead for
// it. When it is back the same leader goes on, and finds out what became of the
// writes whose answers were lost.
func TestResourceOutage(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "", nil, []string{"-lease-ttl=30s"})
	leader := f.settled()
	customers := f.customers(4)
	for range 2 {
		eventually(t, "customers get numbers", func() bool { return customers.under(uint64(leader.FenceToken)) > 50 })
		if err := f.fenced.Cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-f.fenced.Ended
		refused := f.counter(leader.NodeID, "baton_node_next_failed_total")
		eventually(t, "requests are refused", func() bool { return f.counter(leader.NodeID, "baton_node_next_failed_total") > refused })
		given := customers.under(uint64(leader.FenceToken))
		f.fenced = start(t, "fenced", f.fencedAs...)
		eventually(t, "customers get numbers again", func() bool { return customers.under(uint64(leader.FenceToken)) > given+50 })
	}
	customers.stop()
	customers.wg.Wait()
	if len(customers.wrong) > 0 {
		t.Errorf("numbers that repeat or fall: %q", customers.wrong)
	}
	if a := f.audit(); !a.OK {
		t.Errorf("the resource let in what it must not: %+v", a)
	}
	if after := f.settled(); after.FenceToken != leader.FenceToken {
		t.Errorf("the leader changed from %+v to %+v", leader, after)
	}
}

// Ctrl-C ends a pause early and leaves nothing frozen.
func TestInterruptUndoes(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "", nil, []string{"-lease-ttl=30s"}) // there is a leader, also if the machine stands still
	for _, args := range [][]string{{"gc-pause-leader", "--ms=600000"}, {"partition-leader", "--secs=600"}} {
		leader := f.settled()
		// The command says what it did as soon as it did it.
		p := start(t, "chaos", append(args, "--fleet", f.path)...)
		if err := p.Cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-p.Ended
		if code := p.Cmd.ProcessState.ExitCode(); code != 130 {
			t.Errorf("%q, interrupted: exit status %d: %s", args, code, p.Said())
		}
		eventually(t, leader.NodeID+" answers and has a leader", func() bool { return f.statuses()[leader.NodeID].Leader != nil })
	}
}

// Nothing is done to a process of which it is not certain that it is the node.
func TestStrangersAreNotTouched(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "", nil, []string{"-lease-ttl=30s"})
	leader := f.settled()
	stranger := exec.Command("sleep", "600")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	}()
	for i := range f.file.Nodes {
		f.file.Nodes[i].PIDFile, f.file.Nodes[i].PID = "", stranger.Process.Pid
	}
	wrong := filepath.Join(filepath.Dir(f.path), "wrong.json")
	if err := f.file.Save(wrong); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"kill-leader", "gc-pause-leader --ms=10"} {
		status, said := runChaos(t, append(strings.Fields(command), "--fleet", wrong)...)
		for tries := 1; status == noLeader && tries < 5; tries++ { // nobody answered within a second
			f.settled()
			status, said = runChaos(t, append(strings.Fields(command), "--fleet", wrong)...)
		}
		if status != 1 || !strings.Contains(said, "is not touched") {
			t.Errorf("%s: exit status %d: %s", command, status, said)
		}
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the stranger: %v", err)
	}
	status, said := runChaos(t, "status", "--settled", "--fleet", f.path)
	if token := strconv.FormatUint(uint64(leader.FenceToken), 10); status != 0 || !strings.Contains(said, token) || strings.Count(said, "follower") != 2 {
		t.Errorf("chaos status: exit status %d:\n%s", status, said)
	}
	if after := f.settled(); after.FenceToken != leader.FenceToken {
		t.Errorf("the leader changed: %+v", after)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := &fleet.File{Group: "g", Backend: "baton", Store: "http://127.0.0.1:1", Nodes: []fleet.Node{{ID: "n1", HTTP: "127.0.0.1:1"}}}
	path := filepath.Join(dir, "fleet.json")
	if err := empty.Save(path); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   string
		status int
		says   string
	}{
		{"help", 0, "usage: chaos kill-leader"},
		{"kill-leader -h", 0, "usage: chaos kill-leader"},
		{"slap-leader", 2, `unknown command "slap-leader"`},
		{"kill-leader --fleet " + dir + "/none.json", 2, "no such file"},
		{"kill-leader --fleet FLEET", 3, "no node of the fleet says that it leads: 0 of 1 answered"},
		{"kill-leader --fleet FLEET -o yaml", 2, "want text or json"},
		{"resign-leader --fleet FLEET --to n2", 3, "no node of the fleet says that it leads"},
		{"stop-leader --fleet FLEET", 3, "no node of the fleet says that it leads"},
		{"gc-pause-leader --fleet FLEET", 2, "--ms, how long to stop it, must be positive"},
		{"partition-leader --fleet FLEET", 2, "--secs, how long it lasts, must be positive"},
		{"partition-leader --fleet FLEET --direction=sideways", 2, `--direction is "sideways"`},
		{"partition-leader --fleet FLEET --secs=1 --direction=up", 2, `--direction is "up"`},
		{"slow-leader --fleet FLEET --secs=1", 2, "--delay-ms, how much later everything arrives, must be positive"},
		{"status --fleet FLEET -o json", 3, "0 of 1 answered"},
		{"status --settled --wait 50ms --fleet FLEET", 3, "0 of 1 answered"},
		{"kill-leader --settled --fleet FLEET", 2, "-settled"},
		{"proxy --fleet FLEET", 2, "names no address for the proxy"},
	} {
		status, said := runChaos(t, strings.Fields(strings.ReplaceAll(tt.args, "FLEET", path))...)
		if status != tt.status || !strings.Contains(said, tt.says) {
			t.Errorf("chaos %s: exit status %d, want %d and %q:\n%s", tt.args, status, tt.status, tt.says, said)
		}
		if status == 2 && strings.Count(said, "\n") != 1 {
			t.Errorf("chaos %s: more than one line:\n%s", tt.args, said)
		}
	}
}

// runChaos runs the command to its end and returns all that it said.
func runChaos(t *testing.T, args ...string) (status int, said string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), testprocess.Path("chaos"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its status says all
	return cmd.ProcessState.ExitCode(), out.String()
}
