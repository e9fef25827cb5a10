package storetest

import (
	"context"
	"testing"
	"time"

	"baton"
	"baton/store/memstore"
)

// client is one handle of several on a memory store. Closing it may give back what it held.
type client struct {
	*memstore.Store
	gives bool
	held  []baton.LeaseID
}

func (c *client) Acquire(ctx context.Context, group string, who baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	l, err := c.Store.Acquire(ctx, group, who, ttl)
	if err == nil {
		c.held = append(c.held, l.ID())
	}
	return l, err
}

func (c *client) Guarantees() baton.Guarantees {
	g := c.Store.Guarantees()
	g.DurableTerms = true
	return g
}

func (c *client) Close() error {
	for _, id := range c.held {
		if c.gives {
			_ = c.Release(context.Background(), id)
		}
	}
	return nil
}

// onClients is a harness with several handles on a store that can be restarted, and that may forget everything then.
func onClients(givesBack, forgets bool) Harness {
	return Harness{Start: func(t T) Backing {
		inner := newMemory(t)
		t.Cleanup(func() { _ = inner.Close() })
		return Backing{
			Open: func() baton.Store { return &client{Store: inner, gives: givesBack} },
			Restart: func() {
				if forgets {
					_ = inner.Close()
					inner = newMemory(t)
				}
			},
		}
	}}
}

// clientCases are the checks that say nothing about a store with one handle that is never restarted.
var clientCases = map[string]Harness{
	"Close/LeavesLeasesAlone":  onClients(true, false),
	"Terms/RiseThroughRestart": onClients(false, true),
}

func TestRulesOfHandlesCanFail(t *testing.T) {
	for _, c := range Cases() {
		broken, ok := clientCases[c.Name]
		if !ok {
			continue
		}
		if failed, said := verdict(t, func(t T) { c.Check(t, onClients(false, false)) }); failed {
			t.Errorf("the reference store fails %s:\n%s", c.Name, said)
		}
		if failed, _ := verdict(t, func(t T) { c.Check(t, broken) }); !failed {
			t.Errorf("%s did not notice", c.Name)
		}
	}
}
