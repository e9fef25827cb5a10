package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"baton"
	"baton/fence"
)

// checkLog checks what must hold for accepted writes in their order: terms
// never fall, no two instances share a term, numbers rise under any term.
func checkLog(t T, log []Entry) {
	t.Helper()
	var (
		last    baton.Token
		lastSeq int64
	)
	for i, e := range log {
		tok := e.Claim.Token()
		switch {
		case tok.Term < last.Term:
			t.Errorf("entry %d of %d: %v (%s) landed after term %d", i, len(log), e.Claim, e.Value, last.Term)
			return
		case tok.Term == last.Term && tok.InstanceID != last.InstanceID:
			t.Errorf("entry %d of %d: %v (%s) landed after %v", i, len(log), e.Claim, e.Value, last)
			return
		}
		last = tok
		if seq, ok := e.Claim.Seq(); ok {
			if seq <= lastSeq {
				t.Errorf("entry %d of %d: %v (%s) landed after number %d", i, len(log), e.Claim, e.Value, lastSeq)
				return
			}
			lastSeq = seq
		}
	}
}

// adoptRace: of many that adopt at once, the highest term has it, and of two
// instances of one term only one.
func adoptRace(ctx context.Context, t T, s Subject, _ Options) {
	const terms = 16
	var (
		racers   sync.WaitGroup
		mu       sync.Mutex
		adopters = make(map[baton.Term]string)
	)
	for _, i := range rand.Perm(2 * terms) {
		tok := token(baton.Term(i/2+1), fmt.Sprintf("i%d", i%2))
		racers.Go(func() {
			r, err := s.Adopt(ctx, resource, tok)
			switch {
			case errors.Is(err, fence.ErrStale):
			case err != nil:
				t.Errorf("adopt %v: %v", tok, err)
			case r.Token() != tok:
				t.Errorf("adopt %v: got the record of %v", tok, r.Token())
			default:
				mu.Lock()
				defer mu.Unlock()
				if other := adopters[tok.Term]; other != "" {
					t.Errorf("term %d was adopted by both %s and %s", tok.Term, other, tok.InstanceID)
				}
				adopters[tok.Term] = tok.InstanceID
			}
		})
	}
	racers.Wait()
	if r := mustRead(ctx, t, s); r.Term != terms || r.InstanceID != adopters[terms] {
		t.Errorf("after the race the resource belongs to %v, want term %d of %q", r, terms, adopters[terms])
	}
}

// adoptThroughCrowd: writers that never pause do not keep a successor out.
func adoptThroughCrowd(ctx context.Context, t T, s Subject, _ Options) {
	const (
		writers = 32
		bound   = 30 * time.Second // far beyond what is acceptable in use; the figure is logged
	)
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(ctx, t, s, a)
	var (
		crowd sync.WaitGroup
		wrote atomic.Int64
	)
	for range writers {
		crowd.Go(func() {
			for {
				err := s.Append(ctx, resource, fence.Unordered(a), "a", nil)
				if errors.Is(err, fence.ErrStale) {
					return
				}
				if err != nil && ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Logf("append: %v", err) // thrown out by Adopt; one that is fenced out will hear so
					continue
				}
				wrote.Add(1)
			}
		})
	}
	for wrote.Load() < 4*writers {
		if err := pause(ctx); err != nil {
			t.Fatalf("waiting for the crowd to write: %v", err)
		}
	}
	before := wrote.Load()
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	_, err := s.Adopt(bounded, resource, b)
	took := time.Since(began)
	if err != nil {
		t.Errorf("adopt past %d writers: %v", writers, err)
		if _, err := s.Adopt(ctx, resource, b); err != nil {
			t.Errorf("adopt again: %v", err)
			return // the writers end with ctx
		}
	}
	if err := s.Append(ctx, resource, fence.Unordered(b), "b", nil); err != nil {
		t.Errorf("write of the successor: %v", err)
	}
	crowd.Wait()
	t.Logf("adopt past %d writers took %v, while %d writes landed", writers, took.Round(time.Microsecond), wrote.Load()-before)
	checkLog(t, mustLog(ctx, t, s))
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func twoLeaders(ctx context.Context, t T, s Subject, o Options) { interleave(ctx, t, s, o, true) }

func twoLeadersUnordered(ctx context.Context, t T, s Subject, o Options) {
	interleave(ctx, t, s, o, false)
}

// interleave lets two nodes that both believe they lead write into each other,
// each taking a new term whenever it was fenced out, and sometimes for no reason.
func interleave(ctx context.Context, t T, s Subject, o Options, ordered bool) {
	tries := int64(o.Writes)
	if tries == 0 {
		tries = 4000
	}
	var (
		nodes           sync.WaitGroup
		terms           atomic.Uint64
		tried, accepted atomic.Int64
		stale, repeated atomic.Int64
		aborted, lost   atomic.Int64
	)
	// Go on until the two were in each other's way often enough, and yet got
	// something done: who is always fenced out at once proves nothing.
	enough := func() bool { return stale.Load() >= tries/100 && accepted.Load() >= tries/10 }
	more := func() bool {
		n := tried.Load()
		return ctx.Err() == nil && (n < tries || !enough() && n < 100*tries)
	}
	for _, name := range []string{"a", "b"} {
		nodes.Go(func() {
			for more() {
				tok := token(baton.Term(terms.Add(1)), name)
				r, err := s.Adopt(ctx, resource, tok)
				if errors.Is(err, fence.ErrStale) {
					continue
				}
				if err != nil {
					t.Errorf("adopt %v: %v", tok, err)
					return
				}
				seq := r.LastSeq
				for more() {
					runtime.Gosched()
					tried.Add(1)
					claim := fence.Unordered(tok)
					if ordered {
						seq++
						if rand.IntN(8) == 0 {
							seq = max(1, seq-2) // a repeat, or near one
						}
						claim = fence.Ordered(tok, seq)
					}
					err := s.Append(ctx, resource, claim, name, nil)
					if errors.Is(err, fence.ErrStale) {
						stale.Add(1)
						break
					}
					if errors.Is(err, fence.ErrRepeat) {
						repeated.Add(1)
						continue
					}
					if didNotLand := new(fence.AbortedError); errors.As(err, &didNotLand) {
						aborted.Add(1) // Adopt may throw out whoever is in its way
						continue
					}
					if err != nil {
						t.Logf("append under %v: %v", claim, err)
						lost.Add(1)
						continue
					}
					accepted.Add(1)
					if rand.IntN(10) == 0 {
						break // elected again
					}
				}
			}
		})
	}
	nodes.Wait()
	if err := ctx.Err(); err != nil {
		t.Fatalf("not done in time: %v", err)
	}
	log := mustLog(ctx, t, s)
	checkLog(t, log)
	if n := int64(len(log)); n < accepted.Load() || n > accepted.Load()+lost.Load() {
		t.Errorf("the log has %d entries, but %d writes were accepted and %d got no answer", n, accepted.Load(), lost.Load())
	}
	if n := aborted.Load() + lost.Load(); n > tries/20 {
		t.Errorf("%d of %d writes failed without being refused", n, tried.Load())
	}
	if !enough() {
		t.Errorf("of %d writes %d were refused as stale and %d accepted: the leaders did not interleave", tried.Load(), stale.Load(), accepted.Load())
	}
	t.Logf("%d writes in %d terms: %d accepted, %d stale, %d repeats, %d aborted, %d unanswered",
		tried.Load(), terms.Load(), accepted.Load(), stale.Load(), repeated.Load(), aborted.Load(), lost.Load())
}
