package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/store/memstore"
	"baton/storetest/internal/capability"
)

// network is a faulty store on fake time that counts what arrives at the store behind it.
type network struct {
	t        *testing.T
	inner    *memstore.Store
	store    baton.Store
	faults   *Faults
	arrivals atomic.Int64
}

func inBubble(t *testing.T, cfg FaultConfig, check func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{t: t, inner: newMemory(t)}
		counting := with(func(s *altered, inner *memstore.Store) {
			s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
				n.arrivals.Add(1)
				return inner.Acquire(ctx, group, c, ttl)
			}
		})
		cfg.Clock = boottime.Monotonic()
		n.store, n.faults = Faulty(counting(n.inner), cfg)
		check(t, n)
		if err := n.store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func (n *network) acquire(ctx context.Context) (baton.Lease, error) {
	return n.store.Acquire(ctx, "g", baton.Candidate{NodeID: "node-a", InstanceID: "a"}, time.Minute)
}

// holder reads behind the network's back.
func (n *network) holder() string {
	l, err := n.inner.Get(n.t.Context(), "g")
	if err != nil {
		n.t.Fatalf("get: %v", err)
	}
	return l.NodeID
}

func (n *network) wantUnavailable(err error) {
	n.t.Helper()
	if !errors.Is(err, baton.ErrUnavailable) {
		n.t.Fatalf("got %v, want ErrUnavailable", err)
	}
}

func TestLostRequest(t *testing.T) {
	inBubble(t, FaultConfig{LostRequest: 1}, func(t *testing.T, n *network) {
		_, err := n.acquire(t.Context())
		n.wantUnavailable(err)
		if n.holder() != "" || n.arrivals.Load() != 0 {
			t.Errorf("a lost request arrived")
		}
	})
}

func TestLostReply(t *testing.T) {
	inBubble(t, FaultConfig{LostReply: 1}, func(t *testing.T, n *network) {
		_, err := n.acquire(t.Context())
		n.wantUnavailable(err)
		if n.holder() != "node-a" {
			t.Errorf("a request whose reply is lost took no effect")
		}
	})
}

func TestDuplicate(t *testing.T) {
	inBubble(t, FaultConfig{Duplicate: 1, MaxDelay: time.Second}, func(t *testing.T, n *network) {
		l, err := n.acquire(t.Context())
		if err != nil || l.NodeID != "node-a" {
			t.Fatalf("the first of two deliveries: %v", err)
		}
		if got := n.arrivals.Load(); got != 1 {
			t.Errorf("%d arrivals by the time of the answer: want 1, the other later", got)
		}
		n.faults.Settle()
		if got := n.arrivals.Load(); got != 2 {
			t.Errorf("%d arrivals: want 2", got)
		}
	})
}

func TestLate(t *testing.T) {
	inBubble(t, FaultConfig{Late: 1, MaxDelay: time.Second}, func(t *testing.T, n *network) {
		_, err := n.acquire(t.Context())
		n.wantUnavailable(err)
		if n.holder() != "" {
			t.Errorf("the request arrived before its caller gave up")
		}
		n.faults.Settle()
		if n.holder() != "node-a" {
			t.Errorf("the request never arrived")
		}
	})
}

// A caller that gives up does not call its request back.
func TestDelayOutlivesTheCaller(t *testing.T) {
	inBubble(t, FaultConfig{Delay: 1, MaxDelay: time.Hour}, func(t *testing.T, n *network) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := n.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the context's error", err)
		}
		if n.holder() != "" {
			t.Fatalf("the request arrived at once")
		}
		n.faults.Settle()
		if n.holder() != "node-a" {
			t.Errorf("the request never arrived")
		}
	})
}

func TestOutageEnds(t *testing.T) {
	inBubble(t, FaultConfig{Outage: .5, MaxOutage: time.Minute}, func(t *testing.T, n *network) {
		refused, served := 0, 0
		for range 200 {
			if _, err := n.store.Get(t.Context(), "g"); err != nil {
				n.wantUnavailable(err)
				refused++
			} else {
				served++
			}
			time.Sleep(10 * time.Second) // fake
		}
		if refused == 0 || served == 0 {
			t.Errorf("%d refused, %d served: want both", refused, served)
		}
		if got := n.faults.Injected()["outage"]; got != refused {
			t.Errorf("%d counted, %d seen", got, refused)
		}
	})
}

func TestSwitch(t *testing.T) {
	inBubble(t, FaultConfig{LostRequest: 1}, func(t *testing.T, n *network) {
		n.faults.Heal()
		if _, err := n.acquire(t.Context()); err != nil {
			t.Errorf("healed: %v", err)
		}
		n.faults.Cut()
		_, err := n.store.Get(t.Context(), "g")
		n.wantUnavailable(err)
		n.faults.Hurt()
		_, err = n.acquire(t.Context())
		n.wantUnavailable(err)
		if got := n.faults.Injected(); got["cut"] != 1 || got["lost request"] != 1 {
			t.Errorf("injected %v", got)
		}
	})
}

func TestCloseEndsWhatIsInTheAir(t *testing.T) {
	inBubble(t, FaultConfig{Late: 1, MaxDelay: 24 * time.Hour}, func(t *testing.T, n *network) {
		start := time.Now()
		for range 10 {
			_, err := n.acquire(t.Context())
			n.wantUnavailable(err)
		}
		if err := n.store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("closing took %v", waited)
		}
		_, err := n.acquire(t.Context())
		n.wantUnavailable(err)
	})
}

func TestFaultsAreDecidedByTheSeed(t *testing.T) {
	draw := func(seed uint64) (fates []fate) {
		_, f := Faulty(newMemory(t), FaultConfig{
			Seed: seed, Clock: stopped{}, LostRequest: .1, LostReply: .1, Duplicate: .1, Late: .1,
			Delay: .5, MaxDelay: time.Second, Outage: .01, MaxOutage: time.Second,
		})
		for range 300 {
			fates = append(fates, f.draw())
		}
		return fates
	}
	if !reflect.DeepEqual(draw(1), draw(1)) {
		t.Errorf("one seed gives two courses of events")
	}
	if reflect.DeepEqual(draw(1), draw(2)) {
		t.Errorf("two seeds give the same course of events")
	}
}

// stopped is a clock that stands still.
type stopped struct{}

func (stopped) Now() time.Duration { return 0 }
func (stopped) AfterFunc(time.Duration, func()) (stop func() bool) {
	return func() bool { return true }
}

// TestWrappersTellTheTruth tries every set of capabilities: the faulty store has what is behind it, and nothing else.
func TestWrappersTellTheTruth(t *testing.T) {
	s := newMemory(t)
	all := capability.Of(s)
	for set := range 16 {
		var has capability.Set
		if set&1 != 0 {
			has.Line = all.Line
		}
		if set&2 != 0 {
			has.Ender = all.Ender
		}
		if set&4 != 0 {
			has.Historian = all.Historian
		}
		if set&8 != 0 {
			has.Registry = all.Registry
		}
		wrapped, _ := Faulty(capability.Join(s, has), FaultConfig{})
		got := capability.Of(wrapped)
		if (got.Line != nil) != (has.Line != nil) || (got.Ender != nil) != (has.Ender != nil) ||
			(got.Historian != nil) != (has.Historian != nil) || (got.Registry != nil) != (has.Registry != nil) {
			t.Errorf("set %04b: the wrapper of %+v has %+v", set, has, got)
		}
	}
}

// TestHealthyNetworkIsTransparent runs the whole suite through wrappers that inject nothing, or delays alone.
func TestHealthyNetworkIsTransparent(t *testing.T) {
	for name, cfg := range map[string]FaultConfig{
		"nothing": {},
		"delays":  {Delay: .3, MaxDelay: 5 * time.Millisecond},
	} {
		h := onMemory(func(inner *memstore.Store) baton.Store {
			cfg.Clock = boottime.Monotonic()
			s, _ := Faulty(inner, cfg)
			return s
		})
		for _, c := range Cases() {
			if failed, said := verdict(t, func(t T) { c.Check(t, h) }); failed {
				t.Errorf("with %s, %s fails:\n%s", name, c.Name, said)
			}
		}
	}
}

// TestFaultyHistories runs the reference store behind bad networks.
func TestFaultyHistories(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			if failed, said := verdict(t, func(t T) { CheckFaulty(t, onMemory(bare), seed) }); failed {
				t.Error(said)
			}
		})
	}
}

// TestFaultyHistoriesCatch shows that bad networks do not hide a broken store.
func TestFaultyHistoriesCatch(t *testing.T) {
	for _, m := range mutants() {
		switch m.name {
		case "grants a held group", "acknowledges every renewal", "loses releases", "starts terms anew after a release",
			"reads what was", "decides in two steps":
		default:
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(10) {
				if failed, said := verdict(t, func(t T) { CheckFaulty(t, onMemory(m.wrap), seed) }); failed {
					t.Logf("seed %d: %s", seed, said)
					return
				}
			}
			t.Errorf("no seed of 10 shows it")
		})
	}
}
