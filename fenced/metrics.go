package fenced

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"baton/fenced/fencedclient"
)

type metrics struct {
	registry   *prometheus.Registry
	accepted   *prometheus.CounterVec
	rejected   *prometheus.CounterVec
	splitBrain prometheus.Counter
	fencing    prometheus.Gauge
	duration   *prometheus.HistogramVec
}

func newMetrics(fencing bool) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "baton_fence_accepted_total", Help: "Writes that were let in.",
		}, []string{"kind"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "baton_fence_rejections_total", Help: "Requests that the ledger refused.",
		}, []string{"reason"}),
		splitBrain: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "baton_split_brain_detected_total", Help: "Accepted writes under a lower term than one before. Always 0 unless fencing is off.",
		}),
		fencing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "baton_fence_enabled", Help: "0 if fencing is off.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "baton_request_duration_seconds", Help: "How long requests took.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 14),
		}, []string{"operation"}),
	}
	m.registry.MustRegister(m.accepted, m.rejected, m.splitBrain, m.fencing, m.duration,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, kind := range []string{fencedclient.KindTick, fencedclient.KindSequence, fencedclient.KindCheckpoint} {
		m.accepted.WithLabelValues(kind)
	}
	for _, reason := range reasons {
		m.rejected.WithLabelValues(reason.name)
	}
	if fencing {
		m.fencing.Set(1)
	}
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) observe(operation string, began time.Time) {
	m.duration.WithLabelValues(operation).Observe(time.Since(began).Seconds())
}
