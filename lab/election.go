package lab

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"baton"
	"baton/internal/fleet"
)

// Election is how a group came to its next leader.
type Election struct {
	Term baton.Term `json:"term"`
	Node string     `json:"node"`
	// Opened says since when the group was open, and At when: "release", the
	// one before gave it back; "deadline", its lease had ended; "fault", it was
	// struck, where there is no lease or nobody waited for its end.
	Opened string `json:"opened"`
	At     int64  `json:"opened_ns"`
	// LatencyMS is from then to when the winner knew: what the backend takes to
	// notice is in it.
	LatencyMS float64 `json:"latency_ms"`
	// CampaignMS is from when the winner first asked for the open group to when it
	// knew; 0 where nodes ask no backend.
	CampaignMS float64 `json:"campaign_ms,omitempty"`
	// Calls is how often nodes asked their backend for anything but renewals, from
	// the fault or the release until a second after the election; those of a node
	// that was started again among them.
	Calls int `json:"calls"`
}

// Opened is what groups were open since, in all these elections, the most frequent first.
func Opened(all []Election) string {
	times := map[string]int{}
	for _, e := range all {
		times[e.Opened]++
	}
	kinds := slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b))
	})
	return strings.Join(kinds, " or ")
}

// wins are the elections as the nodes logged them, by time.
func (r *Record) wins() []fleet.Event {
	var won []fleet.Event
	for _, e := range r.Events {
		if e.Type == fleet.Elected {
			won = append(won, e)
		}
	}
	return won
}

// Elections are those after the first.
func (r *Record) Elections() []Election {
	won := r.wins()
	var all []Election
	for i := 1; i < len(won); i++ {
		before, now := won[i-1], won[i]
		e := Election{Term: now.Term, Node: now.Node}
		fault, struck := r.faultOf(before.Term)
		release := r.releaseOf(before.Term)
		end := r.leaseEnd(before.Term)
		switch {
		case release > 0 && release < now.At:
			e.Opened, e.At = "release", release
		case end > 0 && (end <= now.At || !struck):
			e.Opened, e.At = "deadline", end
		case struck:
			e.Opened, e.At = "fault", fault.Began
		default:
			continue // nobody knows since when
		}
		e.LatencyMS = millis(now.At - e.At)
		if asked, ok := r.campaignOf(now, e.At); ok {
			e.CampaignMS = millis(now.At - asked)
		}
		since := e.At
		if struck {
			since = min(since, fault.Began)
		}
		e.Calls = r.calls(since, now.At+int64(time.Second))
		all = append(all, e)
	}
	return all
}

// faultOf is the last thing that was done to the leader of a term.
func (r *Record) faultOf(term baton.Term) (Fault, bool) {
	for _, f := range slices.Backward(r.Faults) {
		if f.Term == term {
			return f, true
		}
	}
	return Fault{}, false
}

// releaseOf is when a leader sent the release of its lease; 0 if it did not.
func (r *Record) releaseOf(term baton.Term) int64 {
	for _, e := range r.Events {
		if e.Type == fleet.Called && e.Reason == "release" && e.Term == term {
			return e.SentAt
		}
	}
	return 0
}

// campaignOf is when the winner of an election first asked for a group that was
// open since then. One that is let in without having asked since is counted from
// when it did ask.
func (r *Record) campaignOf(won fleet.Event, open int64) (asked int64, ok bool) {
	for _, e := range r.Events {
		if e.Type != fleet.Called || e.Reason != "acquire" || e.Node != won.Node || e.SentAt > won.At {
			continue
		}
		if asked, ok = e.SentAt, true; asked >= open {
			break
		}
	}
	return asked, ok
}

// calls counts what was asked of the backend from one moment to another, beside renewals.
func (r *Record) calls(from, to int64) int {
	n := 0
	for _, e := range r.Events {
		if e.Type == fleet.Called && e.Reason != "renew" && e.SentAt >= from && e.SentAt < to {
			n++
		}
	}
	return n
}

// Turns is how often each node led, and for how many elections in a row each of
// them did not.
func (r *Record) Turns() (led, drought map[string]int) {
	led, drought = map[string]int{}, map[string]int{}
	current := map[string]int{}
	for node := range r.Skew {
		led[node], drought[node] = 0, 0
	}
	for _, e := range r.wins() {
		led[e.Node]++
		for node := range led {
			if node == e.Node {
				current[node] = 0
				continue
			}
			current[node]++
			drought[node] = max(drought[node], current[node])
		}
	}
	return led, drought
}

// Percentile of a list, in percent; NaN of an empty one.
func Percentile(all []float64, percent float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, cmp.Compare[float64])
	at := int(math.Ceil(percent/100*float64(len(sorted)))) - 1
	return sorted[max(0, at)]
}

// Took is how long the winner campaigned, in milliseconds; where nobody knows
// when it began to, since when the group was open.
func (e Election) Took() float64 {
	if e.CampaignMS > 0 {
		return e.CampaignMS
	}
	return e.LatencyMS
}

// Campaigns are how long the winners took, Latencies since when the groups were open.
func Campaigns(all []Election) []float64 { return each(all, Election.Took) }

// Latencies are those of all elections.
func Latencies(all []Election) []float64 {
	return each(all, func(e Election) float64 { return e.LatencyMS })
}

func each(all []Election, ms func(Election) float64) []float64 {
	var list []float64
	for _, e := range all {
		list = append(list, ms(e))
	}
	return list
}
