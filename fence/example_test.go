package fence_test

import (
	"context"
	"errors"
	"fmt"

	"baton"
	"baton/fence"
)

// Leader A pauses, B is elected and adopts, A wakes up and writes.
func Example() {
	ctx := context.Background()
	ledger := new(fence.Memory)
	a := baton.Token{Group: "payments", Term: 7, InstanceID: "node-1"}
	b := baton.Token{Group: "payments", Term: 8, InstanceID: "node-2"}
	pay := func(what string) func(context.Context) error {
		return func(context.Context) error {
			fmt.Println(what)
			return nil
		}
	}

	if _, err := ledger.Adopt(ctx, "account-12", a); err != nil {
		fmt.Println(err)
	}
	if err := ledger.Write(ctx, "account-12", fence.Unordered(a), pay("A pays")); err != nil {
		fmt.Println(err)
	}

	if _, err := ledger.Adopt(ctx, "account-12", b); err != nil {
		fmt.Println(err)
	}
	if err := ledger.Write(ctx, "account-12", fence.Unordered(b), pay("B pays")); err != nil {
		fmt.Println(err)
	}

	err := ledger.Write(ctx, "account-12", fence.Unordered(a), pay("A pays again"))
	fmt.Println(errors.Is(err, fence.ErrStale))
	fmt.Println(err)
	// Output:
	// A pays
	// B pays
	// true
	// resource "account-12" refuses payments/7/node-1 as stale: it belongs to payments/8/node-2, last number 0
}

// A sequencer hands out numbers that no later leader repeats.
func ExampleSequence() {
	ctx := context.Background()
	ledger := new(fence.Memory)
	for term := baton.Term(1); term <= 2; term++ {
		leader := baton.Token{Group: "sequencer", Term: term, InstanceID: fmt.Sprintf("node-%d", term)}
		numbers, err := fence.Adopt(ctx, ledger, "orders", leader)
		if err != nil {
			fmt.Println(err)
			return
		}
		for range 2 {
			last, err := numbers.Do(ctx, fence.Write{
				Count:  10,
				Send:   func(ctx context.Context, c fence.Claim) error { return ledger.Advance(ctx, "orders", c) },
				Landed: fence.Resend, // a gap in the numbers does no harm
			})
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("term %d: %d to %d\n", term, last-9, last)
		}
	}
	// Output:
	// term 1: 1 to 10
	// term 1: 11 to 20
	// term 2: 21 to 30
	// term 2: 31 to 40
}

func ExampleFormatHeader() {
	leader := baton.Token{Group: "payments", Term: 7, InstanceID: "5f0c"}
	fmt.Printf("%s: %s\n", fence.Header, fence.FormatHeader(fence.Ordered(leader, 42)))
	// Output: Baton-Fence: group=payments, term=7, instance=5f0c, seq=42
}
