package baton_test

import (
	"context"
	"fmt"
	"time"

	"baton"
	"baton/store/memstore"
)

// Run is all that most programs need.
func ExampleRun() {
	store, _ := memstore.New(memstore.Config{})
	defer store.Close()
	elector, err := baton.NewElector(store, baton.Config{
		Group:  "payments-coordinator",
		NodeID: "node-17",
		TTL:    5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer elector.Close()

	err = baton.Run(context.Background(), elector, func(ctx context.Context, l *baton.Leadership) error {
		fmt.Println("leading in term", l.Term())
		return nil // done: the lease is released and Run returns
	})
	fmt.Println("result:", err)
	// Output:
	// leading in term 1
	// result: <nil>
}

// Campaign is for programs that want the steps in their own hands.
func ExampleElector_campaign() {
	store, _ := memstore.New(memstore.Config{})
	defer store.Close()
	elector, _ := baton.NewElector(store, baton.Config{Group: "compactor", NodeID: "node-1"})
	defer elector.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := elector.Campaign(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("elected:", l.Valid(), "token:", l.Token().Group, l.Token().Term)
	// ... work under l.Context() that carries l.Token() ...
	if err := l.Resign(ctx); err != nil { // the work has stopped by now
		fmt.Println(err)
	}
	fmt.Println("still valid:", l.Valid())
	// Output:
	// elected: true token: compactor 1
	// still valid: false
}

// Observe tells everybody else who leads, and why nobody does.
func ExampleElector_observe() {
	store, _ := memstore.New(memstore.Config{})
	defer store.Close()
	config := baton.Config{Group: "scheduler", NodeID: "node-1"}
	leader, _ := baton.NewElector(store, config)
	defer leader.Close()
	config.NodeID = "node-2"
	observer, _ := baton.NewElector(store, config)
	defer observer.Close()

	ctx := context.Background()
	l, _ := leader.Campaign(ctx)
	for event, err := range observer.Observe(ctx) {
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case event.Type == baton.LeaderChanged:
			fmt.Println(event.NodeID, "leads in term", event.Term)
			_ = l.Resign(ctx)
		case event.Type == baton.LeaderLost:
			fmt.Println("nobody leads:", event.Reason)
			return
		}
	}
	// Output:
	// node-1 leads in term 1
	// nobody leads: RESIGNED
}
