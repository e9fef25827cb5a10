package cli

import (
	"github.com/prometheus/client_golang/prometheus"

	"baton/store/raftstore"
)

// raftMetrics shows the counters of a raft store to Prometheus.
type raftMetrics struct{ store *raftstore.Store }

var _ prometheus.Collector = raftMetrics{}

// raftMetric is one of them.
type raftMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(raftstore.Stats) float64
}

func raftGauge(name, help string, of func(raftstore.Stats) float64) raftMetric {
	return raftMetric{prometheus.NewDesc("baton_raft_"+name, help, nil, nil), prometheus.GaugeValue, of}
}

func raftCounter(name, help string, of func(raftstore.Stats) float64) raftMetric {
	return raftMetric{prometheus.NewDesc("baton_raft_"+name, help, nil, nil), prometheus.CounterValue, of}
}

// raftSteps shows one kind of step: how many, how many failed, how many
// requests they served, how long all of them took.
func raftSteps(name, plural, shares string, of func(raftstore.Stats) raftstore.Steps) []raftMetric {
	list := []raftMetric{
		raftCounter(name+"_total", plural+".", func(s raftstore.Stats) float64 { return float64(of(s).Count) }),
		raftCounter(name+"_failures_total", plural+" that failed.", func(s raftstore.Stats) float64 { return float64(of(s).Failures) }),
		raftCounter(name+"_seconds_total", "Time taken by: "+plural+".", func(s raftstore.Stats) float64 { return of(s).Total.Seconds() }),
	}
	if shares != "" {
		list = append(list, raftCounter(name+"_"+shares+"_total", "What shared: "+plural+".", func(s raftstore.Stats) float64 { return float64(of(s).Requests) }))
	}
	return list
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

var raftMetricList = func() []raftMetric {
	list := []raftMetric{
		raftGauge("leader", "1 if this server leads the cluster.", func(s raftstore.Stats) float64 { return number(s.Leads) }),
		raftGauge("term", "Raft's own term; none of any group.", func(s raftstore.Stats) float64 { return float64(s.RaftTerm) }),
		raftGauge("commit_index", "The last entry known to be committed.", func(s raftstore.Stats) float64 { return float64(s.Commit) }),
		raftGauge("applied_index", "The last entry applied.", func(s raftstore.Stats) float64 { return float64(s.Applied) }),
		raftGauge("last_log_index", "The last entry in the log.", func(s raftstore.Stats) float64 { return float64(s.LastLog) }),
		raftGauge("last_contact_seconds", "How long ago the leader of the cluster was heard of; 0 on the leader.", func(s raftstore.Stats) float64 { return s.LastContact.Seconds() }),
		raftGauge("leases", "Leases that are live; only the leader of the cluster counts them.", func(s raftstore.Stats) float64 { return float64(s.Leases) }),
		raftCounter("served_total", "Requests answered as the leader of the cluster.", func(s raftstore.Stats) float64 { return float64(s.Served) }),
		raftCounter("forwarded_total", "Requests passed on to the leader of the cluster.", func(s raftstore.Stats) float64 { return float64(s.Forwarded) }),
	}
	list = append(list, raftSteps("rounds", "Rounds that confirm renewals and reads", "requests", func(s raftstore.Stats) raftstore.Steps { return s.Rounds })...)
	list = append(list, raftSteps("commits", "Entries proposed by this server", "commands", func(s raftstore.Stats) raftstore.Steps { return s.Commits })...)
	list = append(list, raftSteps("fsyncs", "Writes to the log, each with an fsync", "entries", func(s raftstore.Stats) raftstore.Steps { return s.Writes })...)
	list = append(list, raftSteps("snapshots", "Snapshots written", "", func(s raftstore.Stats) raftstore.Steps { return s.Snapshots })...)
	return list
}()

// Describe lists the metrics.
func (m raftMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, metric := range raftMetricList {
		to <- metric.desc
	}
}

// Collect reads them.
func (m raftMetrics) Collect(to chan<- prometheus.Metric) {
	stats := m.store.Stats()
	for _, metric := range raftMetricList {
		to <- prometheus.MustNewConstMetric(metric.desc, metric.kind, metric.of(stats))
	}
}
