package kubestore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"baton"
	"baton/internal/testserver"
	"baton/storetest"
	"baton/storetest/drill"
)

// stage is where leaders of all kinds act, on one clock. An act is a moment
// that is known to lie in a leadership: the clock is read first, then the
// leader is asked whether it still leads.
type stage struct {
	mu    sync.Mutex
	start time.Time
	reign []*reign
}

type reign struct {
	who         string
	term        baton.Term
	first, last time.Duration
}

func (s *stage) begin(who string, term baton.Term, now time.Duration) *reign {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &reign{who: who, term: term, first: now, last: now}
	s.reign = append(s.reign, r)
	return r
}

// act acts for a while, or until the leader says that it leads no more.
func (s *stage) act(ctx context.Context, who string, term baton.Term, long time.Duration, leads func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	began := time.Since(s.start)
	var r *reign
	for now := began; now-began < long; now = time.Since(s.start) {
		if !leads() {
			return
		}
		if r == nil {
			r = s.begin(who, term, now)
		}
		s.mu.Lock()
		r.last = now
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// count is how many leaderships there were that Baton granted, and of others.
func (s *stage) count() (ours, theirs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reign {
		if r.term > 0 {
			ours++
		} else {
			theirs++
		}
	}
	return ours, theirs
}

// judge wants nobody to act while another does, and terms to rise.
func (s *stage) judge(t *testing.T) {
	t.Helper()
	slices.SortFunc(s.reign, func(a, b *reign) int { return cmp.Compare(a.first, b.first) })
	var before *reign
	term := baton.Term(0)
	for _, r := range s.reign {
		if before != nil && r.first <= before.last {
			t.Errorf("%s (term %d) acts from %v, while %s (term %d) acts until %v", r.who, r.term, r.first, before.who, before.term, before.last)
		}
		if before == nil || r.last > before.last {
			before = r
		}
		if r.term == 0 {
			continue
		}
		if r.term <= term {
			t.Errorf("%s leads in term %d after %d", r.who, r.term, term)
		}
		term = r.term
	}
}

// Renewals that follow each other within a second are seen by candidates of
// client-go's, who see of times whole seconds: they wait for the end of the last.
func TestTheyWaitForTheLastRenewal(t *testing.T) {
	t.Parallel()
	for range drill.Tries(t) {
		if theyWait(t) {
			return
		}
	}
}

// theyWait reports whether the renewals came in time, and not held up until they led.
func theyWait(t *testing.T) bool {
	t.Helper()
	store, c, namespace := fresh(t)
	s := &stage{start: time.Now()}
	// Right after a second has begun, so that many renewals fall into it.
	<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	sent := time.Since(s.start)
	l := drill.Lead(t, store, sharedLease, "i-1", 2*time.Second)
	until := sent + l.Remaining
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.candidate(ctx, t, c, namespace, "theirs") })
	t.Cleanup(func() { cancel(); running.Wait() })
	for range 8 {
		<-time.After(100 * time.Millisecond)
		sent = time.Since(s.start)
		r, err := store.Renew(t.Context(), l.ID(), 2*time.Second)
		if errors.Is(err, baton.ErrNotLeader) && time.Since(s.start) > until {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		until = sent + r.Remaining
	}
	drill.Eventually(t, "a leadership of theirs", func() bool { _, theirs := s.count(); return theirs > 0 })
	if early := until - s.reign[0].first; early > 0 {
		t.Errorf("they lead %v before the promise of the last renewal has ended", early)
	}
	return true
}

// candidate runs client-go's leader election once: it is elected, acts, and
// goes away without giving the Lease back.
func (s *stage) candidate(ctx context.Context, t *testing.T, c kubernetes.Interface, namespace, identity string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	acted := make(chan struct{})
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: sharedLease}, Client: c.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 3 * time.Second, RenewDeadline: 1500 * time.Millisecond, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(acted)
				s.act(ctx, identity, 0, 700*time.Millisecond, func() bool { return ctx.Err() == nil })
				cancel()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Error(err)
		return
	}
	e.Run(ctx)
	select {
	case <-acted:
	default:
		if e.IsLeader() {
			<-acted
		}
	}
}

// elector runs Baton's elector: elected, it acts, and resigns or goes away.
func (s *stage) elector(ctx context.Context, t *testing.T, store baton.Store, node string) {
	e, err := baton.NewElector(store, baton.Config{
		Group: sharedLease, NodeID: node, TTL: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
		// As eager as the others, who ask at fixed times.
		RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond,
	})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = e.Close() }()
	for n := 0; ctx.Err() == nil; n++ {
		l, err := e.Campaign(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s: campaign: %v", node, err)
			}
			return
		}
		s.act(ctx, node, l.Term(), 700*time.Millisecond, l.Valid)
		if n%2 == 0 {
			l.Lose(errors.New("gone"))
		} else {
			_ = l.Resign(context.WithoutCancel(ctx))
		}
	}
}

// hermit uses the store alone: elected, it renews several times within a second,
// is then silent, and acts until the last moment that it was promised.
func (s *stage) hermit(ctx context.Context, t *testing.T, store baton.Store, node string) {
	const ttl = 2 * time.Second
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		sent := time.Since(s.start)
		l, err := store.Acquire(ctx, sharedLease, baton.Candidate{NodeID: node, InstanceID: fmt.Sprint("i-", n)}, ttl)
		if err != nil {
			// Without an answer it does not know whether it was elected, and does not act.
			wrong := !errors.Is(err, baton.ErrHeld) && !errors.Is(err, baton.ErrConflict) && !errors.Is(err, baton.ErrUnavailable)
			if wrong && ctx.Err() == nil {
				t.Errorf("%s: acquire: %v", node, err)
			}
			<-tick.C
			continue
		}
		until := sent + l.Remaining
		for range 6 {
			<-tick.C
			sent = time.Since(s.start)
			renewed, err := store.Renew(ctx, l.ID(), ttl)
			if err != nil {
				break
			}
			until = sent + renewed.Remaining
		}
		s.act(ctx, node, l.Term, ttl, func() bool { return time.Since(s.start) < until })
	}
}

const sharedLease = "shared"

// Candidates of Baton's and of client-go's share one Lease. Nobody acts while
// another does, and Baton's terms rise, although the Lease is deleted now and then, when it is vacant.
func TestSharedWithCandidatesOfClientGo(t *testing.T) {
	t.Parallel()
	server := testserver.Shared(t, testserver.Kubernetes)
	c := client(t, server)
	namespace := freshNamespace(t, c)
	s := &stage{start: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range 2 {
		store := open(t, server, namespace)
		running.Go(func() { s.elector(ctx, t, store, fmt.Sprintf("ours-%d", i)) })
		theirs := client(t, server)
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s.candidate(ctx, t, theirs, namespace, fmt.Sprintf("theirs-%d-%d", i, n))
				// Who was elected is away for longer than a lease lasts: of those who wait for
				// its end, Baton's wait a little longer, and would rarely have their turn.
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	store := open(t, server, namespace)
	running.Go(func() { s.hermit(ctx, t, store, "hermit") })
	deleted := 0
	want := 3
	if storetest.AllFaults() {
		want = 6
	}
	drill.Eventually(t, "leaderships of both kinds", func() bool {
		l, err := c.CoordinationV1().Leases(namespace).Get(ctx, sharedLease, metav1.GetOptions{})
		ours, theirs := s.count()
		if err == nil && l.Spec.HolderIdentity == nil && 2*deleted < ours {
			err = c.CoordinationV1().Leases(namespace).Delete(ctx, sharedLease, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion},
			})
			if err == nil {
				deleted++
			}
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		return ours >= want && theirs >= want
	})
	cancel()
	running.Wait()
	ours, theirs := s.count()
	t.Logf("%d leaderships of Baton's, %d of client-go's; the Lease was deleted %d times", ours, theirs, deleted)
	s.judge(t)
}
