package lab

import (
	"fmt"
	"slices"
	"time"

	"baton"
	"baton/internal/fleet"
)

// Handover is a leader that was asked to go, and the next one.
type Handover struct {
	Kind     string     `json:"kind"`
	Command  string     `json:"command"`
	From     baton.Term `json:"from_term"`
	FromNode string     `json:"from_node"`
	ToNode   string     `json:"to_node"`
	// StoppedMS is from the order to when the old leader's work had returned.
	StoppedMS float64 `json:"stopped_ms"`
	// LastWriteMS is from the order to when its last accepted write was sent, 0
	// if that was before.
	LastWriteMS float64 `json:"last_write_ms"`
	// GapMS is from there to when the next one's work began, on one clock.
	GapMS float64 `json:"gap_ms"`
	// WriteGapMS is from the old leader's last accepted write to the new one's
	// first: from the last word of the one that it is accepted to before the other's is sent.
	WriteGapMS float64 `json:"write_gap_ms"`
	// Wrote: both have written, so that there is such a gap.
	Wrote bool `json:"wrote"`
}

// Handovers are those that were asked for and took place.
func (r *Record) Handovers() []Handover {
	var all []Handover
	won := r.wins()
	for _, f := range r.Faults {
		if !graceful(f.Kind) {
			continue
		}
		for i := range won[:max(0, len(won)-1)] {
			if won[i].Term == f.Term {
				all = append(all, r.handover(f, won[i+1]))
			}
		}
	}
	return all
}

func (r *Record) handover(f Fault, next fleet.Event) Handover {
	h := Handover{Kind: f.Kind, Command: f.Command, From: f.Term, FromNode: f.Node, ToNode: next.Node}
	var stopped, began, lastSent, lastHeard, first int64
	for _, e := range r.Events {
		switch {
		case e.Type == fleet.ActingEnded && e.Term == f.Term:
			stopped = e.At
		case e.Type == fleet.ActingBegan && e.Term == next.Term:
			began = e.At
		case e.Type == fleet.WriteAccepted && e.Term == f.Term:
			lastSent, lastHeard = max(lastSent, e.SentAt), max(lastHeard, e.At)
		case e.Type == fleet.WriteAccepted && e.Term == next.Term && first == 0:
			first = e.SentAt
		}
	}
	if stopped == 0 { // it never said so
		stopped = r.Ended
	}
	h.StoppedMS, h.LastWriteMS = millis(stopped-f.Began), max(0, millis(lastSent-f.Began))
	h.GapMS = millis(began - stopped)
	if first > 0 && lastHeard > 0 {
		h.Wrote, h.WriteGapMS = true, millis(first-lastHeard)
	}
	return h
}

// HandedOver: every leader that was asked to go has handed over, to another, and there were
// some that both wrote.
var HandedOver = Check{"every leader that was asked to go was followed by another", Shown, func(r *Record) (bool, string) {
	var asked, same, wrote int
	for _, f := range r.Faults {
		if graceful(f.Kind) {
			asked++
		}
	}
	all := r.Handovers()
	for _, h := range all {
		if h.FromNode == h.ToNode {
			same++
		}
		if h.Wrote {
			wrote++
		}
	}
	return len(all) == asked && wrote > 0 && same == 0,
		fmt.Sprintf("%d asked, %d handed over, %d from writer to writer, %d to themselves", asked, len(all), wrote, same)
}}

// GapPositive: the next leader began only after the old one had stopped, and
// wrote only after the old one's last write was in.
var GapPositive = Check{"the gap of every handover is positive", Safety, func(r *Record) (bool, string) {
	var gaps, writes []float64
	for _, h := range r.Handovers() {
		gaps = append(gaps, h.GapMS)
		if h.Wrote {
			writes = append(writes, h.WriteGapMS)
		}
	}
	if len(writes) == 0 { // which HandedOver has something to say about
		return len(gaps) == 0 || slices.Min(gaps) > 0, fmt.Sprintf("%d handovers, none from writer to writer", len(gaps))
	}
	return slices.Min(gaps) > 0 && slices.Min(writes) > 0,
		fmt.Sprintf("%d handovers; least gap %.3f ms by acting, %.3f ms by writes", len(gaps), slices.Min(gaps), slices.Min(writes))
}}

// StoppedWithin: the work of a leader that was asked to go had returned within this time.
func StoppedWithin(limit time.Duration) Check {
	return Check{fmt.Sprintf("work stopped within one renewal interval, %v", limit.Round(time.Millisecond)), Target, func(r *Record) (bool, string) {
		var worst float64
		for _, h := range r.Handovers() {
			worst = max(worst, h.StoppedMS)
		}
		return worst <= millis(int64(limit)), fmt.Sprintf("worst %.1f ms after the order", worst)
	}}
}
