package lab

import (
	"context"
	"net/http"
	"sync"
	"time"

	"baton"
	"baton/internal/fleet"
)

// sampler looks at all nodes again and again: who says that it leads, and for
// how long it would without a renewal.
type sampler struct {
	http   *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	samples []Sample
}

// lookEvery is the time between two looks at a node.
const lookEvery = 20 * time.Millisecond

func startSampler(nodes []fleet.Node) *sampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sampler{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}}, cancel: cancel}
	for _, n := range nodes {
		s.wg.Go(func() { s.watch(ctx, n) })
	}
	return s
}

func (s *sampler) watch(ctx context.Context, n fleet.Node) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		at := fleet.Now()
		status, err := fleet.GetStatus(asking, s.http, n.HTTP)
		cancel()
		if err == nil {
			s.mu.Lock()
			s.samples = append(s.samples, Sample{
				At: at, Node: n.ID, Leads: status.Role == fleet.RoleLeader, Acting: status.Acting,
				Term: status.FenceToken, Remaining: time.Duration(status.LeaseTTLRemainingMS) * time.Millisecond,
			})
			s.mu.Unlock()
		}
		pause(ctx, lookEvery)
	}
}

// leaseEnd is when the backend was going to end the lease of a term: what the
// leader said it would trust, and the margin that it leaves.
func (s *sampler) leaseEnd(term baton.Term, margin time.Duration) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var end int64
	for _, a := range s.samples {
		if a.Leads && a.Term == term {
			end = max(end, a.At+int64(a.Remaining+margin))
		}
	}
	return end
}

func (s *sampler) stop() []Sample {
	s.cancel()
	s.wg.Wait()
	s.http.CloseIdleConnections()
	return s.samples
}
