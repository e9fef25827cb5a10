package httpapi_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/internal/line"
	"baton/server"
)

// waiter campaigns as the API is meant to be used: waits for its turn, then tries.
type waiter struct {
	r        *rig
	group    string
	node     string
	instance string
}

func (w waiter) body(wait time.Duration) string {
	b := fmt.Sprintf(`{"node_id":%q,"lease_ttl_ms":60000,"wait_ms":%d`, w.node, wait.Milliseconds())
	if w.instance != "" {
		b += fmt.Sprintf(`,"instance_id":%q`, w.instance)
	}
	return b + "}"
}

// win repeats one and the same request until it leads, and returns the winning answer and the turns it took.
func (w waiter) win(ctx context.Context) (a answer, turns int, err error) {
	for {
		a, err = w.r.try(ctx, "POST", "/v1/groups/"+w.group+"/campaign", w.body(30*time.Second), nil)
		if err != nil {
			return a, turns, err
		}
		if a.status != 200 {
			return a, turns, fmt.Errorf("status %d: %s", a.status, a.body)
		}
		if a.at("is_leader") == true {
			return a, turns, nil
		}
		if a.at("your_turn") == true {
			turns++
			if a.num("retry_after_ms") != 0 || a.at("retry_after_ms") == nil {
				return a, turns, fmt.Errorf("a turn with a delay: %s", a.body)
			}
		}
	}
}

func (r *rig) waiting(n int) func() bool {
	return func() bool { return r.metric("baton_waiting_campaigns") == fmt.Sprint(n) }
}

func TestTurnThenGrant(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) baton.Store{
		"the store's line":  func(t *testing.T) baton.Store { return memory(t) },
		"the server's line": func(t *testing.T) baton.Store { return plain{memory(t)} },
	} {
		for _, instance := range []string{"", "i"} {
			t.Run(name+" "+instance, func(t *testing.T) {
				r := newRig(t, withStore(store(t)))
				for try := range 5 {
					group := fmt.Sprint("g", try)
					path := "/v1/groups/" + group
					w := waiter{r: r, group: group, node: "n", instance: instance}
					began := time.Now()
					a := r.do("POST", path+"/campaign", w.body(time.Minute)).want(200).
						has("is_leader", false, "your_turn", true, "leader", nil, "retry_after_ms", 0)
					vacant := r.do("GET", path+"/leader", "").want(200)
					barger := r.do("POST", path+"/campaign", `{"node_id":"barger","lease_ttl_ms":5000}`).want(200)
					if time.Since(began) > line.TurnKept/2 {
						continue // the turn may be over by now: the machine stood still
					}
					vacant.has("leader", nil) // a turn is no grant
					barger.has("is_leader", false)
					r.do("POST", path+"/campaign", w.body(time.Minute)).want(200).
						has("is_leader", true, "leader.node_id", "n", "leader.instance_id", a.str("instance_id"))
					return
				}
				t.Error("five times a turn was over before anybody could be in its way")
			})
		}
	}
}

// One that only waits is never granted anything, and when the wait is over it is told who leads.
func TestWaitWithoutTTL(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.do("POST", "/v1/groups/g/campaign", `{"node_id":"n","instance_id":"i","wait_ms":60000}`).want(200).has("is_leader", false, "your_turn", true)
	}
	r.lead("g", "n", "i", time.Minute)
	a := r.do("POST", "/v1/groups/g/campaign", `{"node_id":"m","instance_id":"j","wait_ms":5}`).want(200).
		has("is_leader", false, "your_turn", nil, "leader.node_id", "n")
	if a.num("retry_after_ms") < 100 {
		t.Errorf("retry_after_ms: %s", a.body)
	}
}

// 200 wait, the leader resigns: one is called and granted, and the store is not run down.
func TestOneVacancyCallsOneCandidate(t *testing.T) {
	store := &counted{Store: memory(t)}
	r := newRig(t, withStore(store))
	for try := range 5 {
		if oneVacancy(t, r, store, fmt.Sprint("g", try)) {
			return
		}
	}
	t.Error("five times a turn may have been over before it was taken")
}

// oneVacancy is false if a turn may have been over before it was taken: the machine stood still.
func oneVacancy(t *testing.T, r *rig, store *counted, group string) bool {
	t.Helper()
	const n = 200
	term := r.lead(group, "leader", "l", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	type outcome struct {
		a     answer
		turns int
	}
	winners := make(chan outcome, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			w := waiter{r: r, group: group, node: fmt.Sprint("n", i), instance: fmt.Sprint("i", i)}
			a, turns, err := w.win(ctx)
			if err == nil {
				winners <- outcome{a, turns}
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	defer eventually(t, "nobody waits any more", r.waiting(0))
	defer wg.Wait()
	defer cancel()
	eventually(t, "all wait", r.waiting(n))
	before := store.acquires.Load()
	resigned := time.Now()
	r.resign(group, "leader", "l", term).want(200)
	first := <-winners
	if time.Since(resigned) > line.TurnKept/2 {
		return false
	}
	if first.turns != 1 || first.a.num("leader.term") != term+1 {
		t.Errorf("won after %d turns: %s", first.turns, first.a.body)
	}
	eventually(t, "all others wait on", r.waiting(n-1))
	if got := store.acquires.Load() - before; got != 1 {
		t.Errorf("%d acquires for one vacancy", got)
	}
	cancel()
	wg.Wait()
	if len(winners) != 0 {
		t.Errorf("%d more won", len(winners))
	}
	return true
}

// A first in line whose connection died is passed over.
func TestDeadFirstInLine(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) baton.Store{
		"the store's line":  func(t *testing.T) baton.Store { return memory(t) },
		"the server's line": func(t *testing.T) baton.Store { return plain{memory(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withStore(store(t)))
			term := r.lead("g", "leader", "l", time.Minute)
			ctx, die := context.WithCancel(t.Context())
			died := make(chan struct{})
			go func() {
				defer close(died)
				_, _, _ = waiter{r: r, group: "g", node: "first", instance: "1"}.win(ctx)
			}()
			eventually(t, "the first waits", r.waiting(1))
			won := make(chan answer, 1)
			go func() {
				a, _, err := waiter{r: r, group: "g", node: "second", instance: "2"}.win(t.Context())
				if err != nil {
					t.Error(err)
				}
				won <- a
			}()
			eventually(t, "both wait", r.waiting(2))
			die()
			<-died
			eventually(t, "the server has seen it go", r.waiting(1))
			r.resign("g", "leader", "l", term).want(200)
			select {
			case a := <-won:
				a.has("leader.node_id", "second")
			case <-time.After(soon):
				t.Fatal("the second was never called")
			}
		})
	}
}

// inFavour asks to hand over until the successor is in line: it takes its place after it is seen to wait.
func inFavour(t *testing.T, ask func() answer) {
	t.Helper()
	eventually(t, "the successor is in line", func() bool {
		a := ask()
		if a.status == 409 && a.str("reason") == "not_in_line" {
			return false
		}
		a.want(200)
		return true
	})
}

func TestResignInFavourOf(t *testing.T) {
	r := newRig(t)
	for try := range 5 {
		if resignInFavourOf(t, r, fmt.Sprint("g", try)) {
			return
		}
	}
	t.Error("five times the turn of the chosen one may have been over before it was taken")
}

// resignInFavourOf is false if the turn may have been over before it was taken: the machine stood still.
func resignInFavourOf(t *testing.T, r *rig, group string) bool {
	t.Helper()
	path := "/v1/groups/" + group
	term := r.lead(group, "leader", "l", time.Minute)
	resign := func(successor string) answer {
		return r.do("POST", path+"/resign", fmt.Sprintf(`{"node_id":"leader","term":%d,"successor":%q}`, term, successor))
	}
	resign("absent").want(409).has("error", "CONFLICT", "reason", "not_in_line")
	r.do("GET", path+"/leader", "").want(200).has("leader.node_id", "leader", "leader.ending", nil)

	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	won := make(chan answer, 2)
	for i, node := range []string{"first", "chosen"} {
		wg.Go(func() {
			if a, _, err := (waiter{r: r, group: group, node: node, instance: "i-" + node}).win(ctx); err == nil {
				won <- a
			}
		})
		eventually(t, "it waits", r.waiting(i+1))
	}
	var resigned time.Time
	inFavour(t, func() answer {
		resigned = time.Now()
		return resign("chosen")
	})
	winner := <-won
	inTime := time.Since(resigned) <= line.TurnKept/2
	cancel()
	wg.Wait()
	eventually(t, "nobody waits any more", r.waiting(0))
	if !inTime {
		return false
	}
	winner.has("leader.node_id", "chosen", "leader.term", int(term+1))
	terms, _ := r.do("GET", path+"/history", "").want(200).m["terms"].([]any)
	if got := terms[0].(map[string]any)["reason"]; got != "TRANSFERRED" {
		t.Errorf("reason %v", got)
	}
	return true
}

func TestStepDownWithSuccessor(t *testing.T) {
	r := newRig(t)
	term := r.lead("g", "leader", "l", time.Minute)
	won := make(chan answer, 1)
	go func() {
		a, _, err := waiter{r: r, group: "g", node: "next", instance: "n"}.win(t.Context())
		if err != nil {
			t.Error(err)
		}
		won <- a
	}()
	eventually(t, "it waits", r.waiting(1))
	inFavour(t, func() answer {
		return r.do("POST", "/v1/groups/g/step-down", `{"reason":"move","successor":"next"}`)
	})
	r.do("POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"leader","instance_id":"l","term":%d,"extend_by_ms":60000}`, term)).
		want(200).has("leader.ending.reason", "TRANSFERRED", "leader.ending.successor", "next")
	r.resign("g", "leader", "l", term).want(200)
	(<-won).has("leader.node_id", "next")
}

func TestTooManyWaiting(t *testing.T) {
	r := newRig(t, withService(func(c *server.Config) { c.MaxWaiting = 1 }))
	r.lead("g", "leader", "l", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = waiter{r: r, group: "g", node: "n", instance: "i"}.win(ctx)
	}()
	eventually(t, "one waits", r.waiting(1))
	r.do("POST", "/v1/groups/g/campaign", `{"node_id":"m","lease_ttl_ms":5000,"wait_ms":1000}`).want(429).has("error", "RATE_LIMITED")
	cancel()
	<-done
}
