package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestSettled(t *testing.T) {
	f := &File{Group: "g", Backend: "baton", Nodes: []Node{
		{ID: "n1", HTTP: "127.0.0.1:1", PIDFile: "n1.pid", Events: "n1.events"},
		{ID: "n2", HTTP: "127.0.0.1:2", PIDFile: "n2.pid", Events: "n2.events"},
	}}
	if err := f.Save(filepath.Join(t.TempDir(), "fleet.json")); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(f.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leader := Status{NodeID: "n1", Role: RoleLeader, FenceToken: 3, Acting: true, Leader: &Leader{NodeID: "n1"}}
	follower := Status{NodeID: "n2", Role: RoleFollower, Leader: &Leader{NodeID: "n1"}}
	check := func(what string, want bool, answers ...Status) {
		t.Helper()
		statuses := map[string]Status{}
		for _, s := range answers {
			statuses[s.NodeID] = s
		}
		got, ok := f.Settled(statuses)
		if ok != want || ok && got.NodeID != "n1" {
			t.Errorf("%s: %+v, %t", what, got, ok)
		}
	}
	check("one leads, the other follows", true, leader, follower)
	idle := leader
	idle.Acting = false
	check("the leader does not act", false, idle, follower)
	candidate := follower
	candidate.Role, candidate.Leader = RoleCandidate, nil
	check("nobody leads", false, candidate)
	check("one knows of no leader", false, leader, candidate)
	misled := follower
	misled.Leader = &Leader{NodeID: "n3"}
	check("one follows another", false, leader, misled)
	second := leader
	second.NodeID, second.FenceToken = "n2", 2
	check("two say that they lead", false, leader, second)

	check("no trace of the other yet", false, leader)
	mute := exec.Command("sh", "-c", "read forever", "node", "-node-id", "n2")
	stdin, err := mute.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mute.Start(); err != nil {
		t.Fatal(err)
	}
	// Its command line is there a moment after it has started.
	for late := time.After(time.Minute); !StartedAs(mute.Process.Pid, "n2"); {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("a process that was started is not seen")
		}
	}
	write("n2.pid", strconv.Itoa(mute.Process.Pid))
	check("the other runs and does not answer", false, leader)
	_ = stdin.Close()
	_ = mute.Wait() // reading nothing is a failure
	check("the other has died", true, leader)
	write("n2.pid", strconv.Itoa(os.Getpid()))
	check("a stranger has the process number of one that was killed", true, leader)
	write("n2.pid", "999999999")
	check("the other was killed", true, leader)
	if err := os.Remove(f.Path("n2.pid")); err != nil {
		t.Fatal(err)
	}
	write("n2.events", `{"event":"started"}`+"\n")
	check("the other runs, and has not said where", false, leader)
	write("n2.events", `{"event":"started"}`+"\n"+`{"event":"stopped"}`+"\n")
	check("the other has ended by itself", true, leader)
}
