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
		survivesChaos(t, startFleet(t, "", nil, []string{"-clock-skew=-200ms"}))
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

// enough is how often something is done that shows too little where the machine stands still in its midst.
const enough = 5

func survivesChaos(t *testing.T, f *testFleet) {
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
	harm := func(lacks func(r chaos.Report) string, args ...string) {
		t.Helper()
		for tries := 1; ; tries++ {
			r := f.chaos(args...)
			settle(r)
			what := lacks(r)
			if what == "" {
				return
			}
			if tries == enough {
				t.Errorf("%q, %d times: %s: %+v", args, tries, what, r)
				return
			}
			t.Logf("%q again: %s: %+v", args, what, r)
		}
	}

	killed := f.chaos("kill-leader")
	f.startNode(killed.Target.NodeID)
	settle(killed)

	harm(func(r chaos.Report) string {
		switch {
		case r.Successor.AfterMS >= *r.HealedAfterMS:
			return "nobody took over while the leader was frozen"
		case r.Stopped == nil || r.Rejoined == nil:
			return "the woken leader did not stop, or did not come back"
		}
		return ""
	}, "gc-pause-leader", "--ms="+strconv.FormatInt((ttl+3*time.Second).Milliseconds(), 10))

	for _, direction := range []proxy.Direction{proxy.Both, proxy.ToBackend, proxy.FromBackend} {
		harm(func(r chaos.Report) string {
			switch {
			case !f.apart(r.Target, r.Successor.Leader):
				return heldUp
			case r.Stopped == nil || r.Stopped.AfterMS >= *r.HealedAfterMS:
				return "the leader did not stop by itself"
			case r.Rejoined == nil || r.Rejoined.Role != string(fleet.RoleFollower):
				return "the old leader did not come back as a follower"
			}
			return ""
		}, "partition-leader", cutOff, "--direction="+string(direction))
	}

	again := 0
	harm(func(r chaos.Report) string {
		if !f.apart(r.Target, r.Successor.Leader) {
			return heldUp
		}
		if r.Successor.NodeID != r.Target.NodeID {
			return ""
		}
		// Those who were called first may have been held up. Not twice.
		if again++; again == 2 {
			t.Errorf("a leader that handed over leads again at once, twice in a row: %+v", r)
		}
		return "the same node leads again"
	}, "resign-leader")

	for tries := 1; ; tries++ {
		what := stopLeader(f)
		if what == "" {
			break
		}
		if tries == enough {
			t.Errorf("a leader that was asked to end, %d times: %s", tries, what)
			break
		}
		t.Logf("a leader is asked to end again: %s", what)
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
}

// heldUp is what is said of a leader that stood still across its end.
const heldUp = "the leader was held up, and overran its lease"

// stopLeader asks the leader to end, starts it again, and says what was not as it is on a machine that does not stand still.
func stopLeader(f *testFleet) (lacks string) {
	f.t.Helper()
	leader := f.settled()
	f.nodes[leader.NodeID].Signal(syscall.SIGTERM)
	status := f.nodes[leader.NodeID].Wait()
	if status != 0 && status != baton.ExitOverrun {
		f.t.Errorf("after SIGTERM the leader's exit status is %d", status)
	}
	f.startNode(leader.NodeID)
	if !f.apart(claim(leader), claim(f.settled())) || status != 0 {
		return heldUp
	}
	if f.file.Backend != "baton" {
		return ""
	}
	// A server that stands still for half a lease is not told in time.
	if why := f.whyEnded(uint64(leader.FenceToken)); why != "RESIGNED" {
		return "its term ended as " + why
	}
	return ""
}

func claim(s fleet.Status) chaos.Leader {
	return chaos.Leader{NodeID: s.NodeID, PID: s.PID, FenceToken: s.FenceToken}
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
			shown := false
			for tries := 0; !shown && tries < 2*enough; tries++ {
				shown = cutOffWhileSlow(f, func(old, successor chaos.Leader) bool {
					if tt.both {
						// A successor that is held up comes too late to meet a leader that goes on too long.
						return f.overlap(old, successor) > 0
					}
					return f.apart(old, successor)
				})
			}
			if !shown {
				t.Errorf("two leaders at once: want %t, and however often it is tried it is not shown", tt.both)
			}
			if a := f.audit(); !a.OK {
				t.Errorf("the resource let in what it must not: %+v", a)
			}
		})
	}
}

// cutOffWhileSlow delays the backend's answers, then lets no request of the leader through, and
// has whoever leads next compared with it meanwhile.
func cutOffWhileSlow(f *testFleet, shown func(old, successor chaos.Leader) bool) bool {
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
	return shown(claim(leader), claim(successor))
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
		p := f.begin(args...)
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
