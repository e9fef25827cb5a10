package consulstore_test

import (
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/storetest/drill"
)

// queue starts waits, one behind the other, and tells who was called.
func (o *one) queue(t *testing.T, group string, nodes ...string) <-chan string {
	t.Helper()
	called := make(chan string, len(nodes))
	for _, node := range nodes {
		go func() {
			if o.Await(t.Context(), group, baton.Candidate{NodeID: node, InstanceID: "i"}) == nil {
				called <- node
			}
		}()
		drill.Eventually(t, node+" in line", func() bool {
			pair, _, err := o.consul.KV().Get(o.prefix+"/line/"+group+"/"+node+"/i", &api.QueryOptions{RequireConsistent: true})
			return err == nil && pair != nil
		})
	}
	return called
}

// A holder that died before it could hand over does not keep the successor that
// it was told of from going first.
func TestSuccessorIsCalledFirstWhenTheEndingLeaseRunsOut(t *testing.T) {
	t.Parallel()
	o := shared(t)
	for group := range drill.Tries(t) {
		l := drill.Lead(t, o, group, "i-1", time.Minute)
		called := o.queue(t, group, "first", "heir")
		if err := o.End(t.Context(), group, l.Term, baton.Ending{Reason: baton.Transferred, Successor: "heir"}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := o.consul.Session().Destroy(o.session(t, group), nil); err != nil { // as Consul does when it has run out
			t.Fatal(err)
		}
		node := <-called
		if node == "heir" {
			return
		}
		if time.Since(begun) < 700*time.Millisecond { // else the turn of the successor may have passed
			t.Fatalf("%s is called first: want the successor", node)
		}
	}
}

// A place ends with its owner, though later than with other stores, and a grant
// leaves nothing of it.
func TestPlacesEnd(t *testing.T) {
	t.Parallel()
	o := shared(t)
	group := o.prefix
	l := drill.Lead(t, o, group, "i-1", time.Minute)
	called := o.queue(t, group, "second")
	gone := o.another(t)
	ended := make(chan error, 1)
	go func() {
		ended <- gone.Await(t.Context(), group, baton.Candidate{NodeID: "gone", InstanceID: "i"})
	}()
	place := func(node string) bool {
		pair, _, err := o.consul.KV().Get(o.prefix+"/line/"+group+"/"+node+"/i", &api.QueryOptions{RequireConsistent: true})
		if err != nil {
			t.Fatal(err)
		}
		return pair != nil
	}
	drill.Eventually(t, "the second in line", func() bool { return place("gone") })
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	drill.Release(t, o, l)
	second := baton.Candidate{NodeID: <-called, InstanceID: "i"}
	if _, err := o.Acquire(t.Context(), group, second, time.Minute); err != nil {
		t.Fatal(err)
	}
	if place(second.NodeID) {
		t.Error("the place of the one that leads is still there")
	}
	drill.Eventually(t, "the end of a place that nobody keeps", func() bool { return !place("gone") })
	drill.Eventually(t, "the session of the lease alone", func() bool { return len(o.sessions(t, group)) == 1 })
}
