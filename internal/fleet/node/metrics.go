package node

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"baton"
	"baton/fence"
	"baton/internal/fleet"
)

// metrics are what GET /metrics shows.
type metrics struct {
	registry      *prometheus.Registry
	acting        prometheus.Gauge
	transitions   *prometheus.CounterVec
	campaign      prometheus.Histogram
	renewals      prometheus.Counter
	renewFailures *prometheus.CounterVec
	calls         *prometheus.CounterVec
	rejections    *prometheus.CounterVec
	writes        *prometheus.CounterVec
	next          prometheus.Histogram
	nextFailed    prometheus.Counter
	overruns      prometheus.Counter

	// accepted and refused are counted for the status, too.
	accepted, refused atomic.Int64
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		registry:      prometheus.NewRegistry(),
		acting:        prometheus.NewGauge(prometheus.GaugeOpts{Name: "leaders_acting", Help: "1 while this node does the leader's work. The sum over the fleet is at most 1."}),
		transitions:   counters("baton_node_transitions_total", "How often this node came to lead, and how often it stopped.", "to"),
		campaign:      prometheus.NewHistogram(prometheus.HistogramOpts{Name: "baton_node_campaign_seconds", Help: "From the begin of a campaign to its win.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)}),
		renewals:      counter("baton_node_renewals_total", "Renewals that came through."),
		renewFailures: counters("baton_renew_failures_total", "Renewals that did not.", "reason"),
		calls:         counters("baton_node_backend_calls_total", "What this node asked of its store.", "call"),
		rejections:    counters("baton_fence_rejections_total", "Writes of this node that the resource refused.", "reason"),
		writes:        counters("baton_node_writes_total", "Writes of this node that the resource accepted.", "resource"),
		next:          prometheus.NewHistogram(prometheus.HistogramOpts{Name: "baton_node_next_seconds", Help: "How long answered requests for a number took.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18)}),
		nextFailed:    counter("baton_node_next_failed_total", "Requests for a number that this node failed to answer although it led when they came."),
		overruns:      counter("baton_node_overruns_total", "Leaderships whose work went on when it must not have."),
	}
	m.registry.MustRegister(m.acting, m.transitions, m.campaign, m.renewals, m.renewFailures, m.calls, m.rejections, m.writes, m.next, m.nextFailed, m.overruns,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, resource := range resources {
		m.writes.WithLabelValues(resource)
	}
	for _, reason := range reasons {
		m.rejections.WithLabelValues(reason.name)
	}
	return m
}

// showStatus adds what is read off the node's status when it is asked for.
func (m *metrics) showStatus(status func() fleet.Status) {
	for _, role := range fleet.Roles {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "baton_node_role", Help: "1 for what this node is, 0 for the others.",
			ConstLabels: prometheus.Labels{"role": string(role)},
		}, func() float64 {
			if status().Role == role {
				return 1
			}
			return 0
		}))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "baton_node_fence_token", Help: "The term that this node leads under, 0 if it does not.",
	}, func() float64 { return float64(status().FenceToken) }))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) renewed(err error) {
	if err == nil {
		m.renewals.Inc()
		return
	}
	reason := "UNKNOWN"
	if kind, ok := baton.KindOf(err); ok {
		reason = kind.Code
	}
	m.renewFailures.WithLabelValues(reason).Inc()
}

// reasons are the kinds of refusal by the name they are counted under.
var reasons = []struct {
	name string
	err  error
}{
	{"stale", fence.ErrStale},
	{"repeat", fence.ErrRepeat},
	{"not_adopted", fence.ErrNotAdopted},
	{"wrong_group", fence.ErrWrongGroup},
	{"invalid", baton.ErrInvalidArgument},
}

func reasonOf(err error) string {
	for _, reason := range reasons {
		if errors.Is(err, reason.err) {
			return reason.name
		}
	}
	return "other"
}

func (m *metrics) answered(took time.Duration) { m.next.Observe(took.Seconds()) }
