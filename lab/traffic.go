package lab

import (
	"context"
	"net/http"
	"sync"
	"time"

	"baton/internal/fleet"
	"baton/internal/fleet/proxy"
)

// Traffic is how many messages all nodes together had sent to their backend, or
// to each other, at a moment.
type Traffic struct {
	At       int64
	Messages int64
}

// trafficMeter reads the proxy's counts, again and again.
type trafficMeter struct {
	client *proxy.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup
	all    []Traffic
}

const trafficEvery = 200 * time.Millisecond

func startTrafficMeter(address string) *trafficMeter {
	ctx, cancel := context.WithCancel(context.Background())
	m := &trafficMeter{client: &proxy.Client{Address: address, HTTP: &http.Client{Transport: &http.Transport{}}}, cancel: cancel}
	m.wg.Go(func() {
		for ctx.Err() == nil {
			now := Traffic{At: fleet.Now()}
			if nodes, err := m.client.Traffic(ctx); err == nil {
				for _, n := range nodes {
					now.Messages += n.ToBackend.Messages
				}
				m.all = append(m.all, now)
			}
			pause(ctx, trafficEvery)
		}
	})
	return m
}

func (m *trafficMeter) stop() []Traffic {
	m.cancel()
	m.wg.Wait()
	m.client.HTTP.CloseIdleConnections()
	return m.all
}

// TrafficTally sums it up.
type TrafficTally struct {
	Messages int64 `json:"messages"`
	// PerSecond is over the whole arm, Peak of its busiest second.
	PerSecond float64 `json:"per_second"`
	Peak      float64 `json:"peak_per_second"`
}

func tallyTraffic(all []Traffic) TrafficTally {
	var t TrafficTally
	if len(all) < 2 {
		return t
	}
	first, last := all[0], all[len(all)-1]
	t.Messages = last.Messages - first.Messages
	t.PerSecond = float64(t.Messages) / (float64(last.At-first.At) / 1e9)
	for i, from := range all {
		for _, to := range all[i:] {
			if to.At-from.At >= int64(time.Second) {
				t.Peak = max(t.Peak, float64(to.Messages-from.Messages)/(float64(to.At-from.At)/1e9))
				break
			}
		}
	}
	return t
}
