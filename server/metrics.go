package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"baton"
)

// metrics counts what the service does, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry

	timeToElect   prometheus.Histogram
	leaderChanges *prometheus.CounterVec
	renewFailures *prometheus.CounterVec
	healthy       prometheus.Gauge
	splitBrain    prometheus.Counter
	requests      *prometheus.HistogramVec
	waiting       prometheus.Gauge
	watchers      prometheus.Gauge

	mu     sync.Mutex
	labels map[string]bool
	most   int
}

func newMetrics(maxGroupLabels int) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		timeToElect: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "baton_time_to_elect_seconds",
			Help:    "How long a group had no leader: from the release or the deadline of one leadership to the grant of the next.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
		leaderChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "baton_leader_changes_total",
			Help: "Leaderships granted through this server.",
		}, []string{"group"}),
		renewFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "baton_renew_failures_total",
			Help: "Renewals that were not granted, by error code.",
		}, []string{"reason"}),
		healthy: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "baton_store_quorum_healthy",
			Help: "1 if the store decided the last question put to it, 0 if it did not.",
		}),
		splitBrain: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "baton_split_brain_detected_total",
			Help: "Terms that the store granted to two instances. Always 0, or the store is broken.",
		}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "baton_request_duration_seconds",
			Help:    "How long requests took, by operation and outcome. Watches and waits in line are not counted.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"op", "code"}),
		waiting:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "baton_waiting_campaigns", Help: "Campaigns that wait in line at this server."}),
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "baton_watchers", Help: "Watches that this server serves."}),
		labels:   map[string]bool{},
		most:     maxGroupLabels,
	}
	m.registry.MustRegister(m.timeToElect, m.leaderChanges, m.renewFailures, m.healthy, m.splitBrain, m.requests, m.waiting, m.watchers,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// label is the group's own while there are few, and "other" from then on: a
// client that makes up groups must not make up metrics without end.
func (m *metrics) label(group string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.labels[group] {
		return group
	}
	if len(m.labels) >= m.most {
		return "other"
	}
	m.labels[group] = true
	return group
}

func (m *metrics) elected(group string, leaderless time.Duration, known bool) {
	m.leaderChanges.WithLabelValues(m.label(group)).Inc()
	if known {
		m.timeToElect.Observe(leaderless.Seconds())
	}
}

func (m *metrics) renewFailed(err error) {
	kind, _ := baton.KindOf(err)
	m.renewFailures.WithLabelValues(kind.Code).Inc()
}

// Observe counts one request of a door: what was asked, how it ended (an error
// code, or "OK") and how long it took.
func (s *Service) Observe(op, code string, took time.Duration) {
	s.metrics.requests.WithLabelValues(op, code).Observe(took.Seconds())
}
