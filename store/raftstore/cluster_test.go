package raftstore

import (
	"errors"
	"testing"

	"baton"
)

// A server that does not lead the cluster, or no longer, does not answer for
// whoever does: a change is taken to that one, also from one server to the next.
func TestChangesAreTakenToWhoeverLeads(t *testing.T) {
	c := newCluster(t, 3, patient)
	leader, answers := "", map[string]error{}
	for leader == "" || leader != c.leader(t, "") { // it stays for as long as no server stands still
		leader = c.leader(t, "")
		follower := c.servers["s1"]
		if leader == "s1" {
			follower = c.servers["s2"]
		}
		answers["add"] = follower.Add(t.Context(), "s9", "127.0.0.1:1")
		answers["remove"] = follower.Remove(t.Context(), "s9")
	}
	for op, err := range answers {
		for _, told := range []error{err, wireErrorOf(err).err(op)} {
			var elsewhere *notServing
			if !errors.As(told, &elsewhere) || baton.IsAnswer(told) {
				t.Errorf("%s at a server that does not lead: %v", op, told)
			}
		}
	}
}
