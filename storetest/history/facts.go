package history

import (
	"errors"
	"fmt"
	"time"

	"baton"
)

// fact is what one answer says about the group at some moment of its interval. An answer may
// hold two: that a request was refused, and who led then; a store may have looked twice.
type fact struct {
	what     factKind
	instance string // whom it is about; empty if only the term is known
	term     baton.Term
	// call and ret bound the moment; order is by began and ended.
	call, ret    time.Duration
	began, ended int64
	remaining    time.Duration
	op           Op
}

type factKind int

const (
	granted  factKind = iota // instance was given the group, or has it
	landed                   // as granted, by a request whose answer was lost
	renewed                  // the leadership stands and is promised to
	released                 // it was ended by its holder
	lateEnd                  // as released or cut, by a request that was not answered so: if it stood, it was ended
	cut                      // it was ended at once by someone else
	stands                   // it stood
	over                     // it was over, or never was
	vacant                   // nobody led, term was the last one
)

var factNames = [...]string{"granted", "landed", "renewed", "released", "ended late", "cut", "stands", "over", "vacant"}

func (f fact) String() string {
	return fmt.Sprintf("%s %s/%d by [%v]", factNames[f.what], f.instance, f.term, f.op)
}

// evidence is what a group's history comes down to.
type evidence struct {
	facts []fact
	// ghosts: grants may have come and gone unseen, so terms may jump.
	ghosts bool
}

// gather reads one group's requests. An answer that was lost leaves a request which may land at any later
// time, or never. Instead of searching through all those times, it is bounded by its traces: a grant
// happened before it was first seen, an ending before the leadership was first seen to be over. What left no
// trace is not needed to explain anything.
func gather(ops []Op, duplicates bool) evidence {
	var ev evidence
	for _, op := range ops {
		if !op.unknown() {
			ev.facts = append(ev.facts, factsOf(op)...)
		}
	}
	ev.nameHolders()
	ev.addLandings(ops, duplicates)
	ev.addLateEnds(ops, duplicates)
	return ev
}

func factsOf(op Op) []fact {
	base := fact{instance: op.Instance, term: op.Term, call: op.Call, ret: op.Return, began: op.Began, ended: op.Ended, op: op}
	is := func(what factKind) fact { f := base; f.what = what; return f }
	if op.Err == nil {
		switch op.Kind {
		case Acquire:
			f := is(granted)
			f.term, f.remaining = op.Lease.Term, op.Lease.Remaining
			return []fact{f}
		case Renew:
			f := is(renewed)
			f.remaining = op.Lease.Remaining
			return []fact{f}
		case Release:
			return []fact{is(released)}
		case End:
			if op.Immediate {
				return []fact{is(cut)}
			}
			return []fact{is(stands)}
		case Get:
			return []fact{base.seeing(op.Lease)}
		}
	}
	var held *baton.HeldError
	var not *baton.NotLeaderError
	var conflict *baton.ConflictError
	switch {
	case errors.As(op.Err, &held):
		return []fact{base.seeing(held.Lease)}
	case errors.As(op.Err, &not):
		facts := []fact{is(over)}
		if not.Current != nil {
			facts = append(facts, base.seeing(*not.Current))
		}
		return facts
	case errors.As(op.Err, &conflict) && conflict.Reason == baton.ConflictInstanceEnded:
		return []fact{is(over)}
	}
	return nil // refused for what was asked, which says nothing about the group
}

func (f fact) seeing(l baton.Lease) fact {
	f.what, f.instance, f.term = stands, l.InstanceID, l.Term
	if !l.Held() {
		f.what = vacant
	}
	return f
}

// nameHolders fills in the instance where an answer told the term only, and drops what stays nameless.
func (ev *evidence) nameHolders() {
	names := map[baton.Term]string{}
	for _, f := range ev.facts {
		if f.instance != "" && f.term != 0 && f.what != over {
			names[f.term] = f.instance
		}
	}
	kept := ev.facts[:0]
	for _, f := range ev.facts {
		if f.instance == "" && f.what != vacant && f.what != over {
			if f.instance = names[f.term]; f.instance == "" && f.what == stands {
				continue
			}
		}
		kept = append(kept, f)
	}
	ev.facts = kept
}

type leadership struct {
	instance string
	term     baton.Term
}

// addLandings explains leaderships by requests whose answer never came, or that the network repeated.
func (ev *evidence) addLandings(ops []Op, duplicates bool) {
	first := map[leadership]fact{}
	for _, f := range ev.facts {
		switch f.what {
		case granted, renewed, released, stands:
			k := leadership{f.instance, f.term}
			if seen, ok := first[k]; !ok || f.ended < seen.ended {
				first[k] = f
			}
		}
	}
	asked := map[string]Op{}
	for _, op := range ops {
		if op.Kind != Acquire || !op.unknown() && !duplicates {
			continue
		}
		ev.ghosts = true
		first, ok := asked[op.Instance]
		if !ok { // ops are in the order of sending
			first = op
		}
		first.TTL = min(first.TTL, op.TTL) // any of them may have landed
		asked[op.Instance] = first
	}
	var landings []fact
	for k, seen := range first {
		op, ok := asked[k.instance]
		if !ok || op.Began >= seen.ended {
			continue
		}
		landings = append(landings, fact{
			what: landed, instance: k.instance, term: k.term,
			call: op.Call, ret: seen.ret, began: op.Began, ended: seen.ended,
			remaining: op.TTL, op: op,
		})
	}
	ev.facts = append(ev.facts, landings...)
}

// addLateEnds explains ends by requests whose answer never came, or that the network repeated: then a "no" may be the
// answer to a copy, which found the leadership ended by the first. Those that meant one leadership count as one: any of them
// may have ended it, from the first on. One that was answered "done" has ended it already, and so need not be looked at.
func (ev *evidence) addLateEnds(ops []Op, duplicates bool) {
	known := ev.facts
	done := map[baton.Term]bool{}
	for _, op := range ops {
		mayHave := op.unknown() || duplicates && op.Err != nil
		if !mayHave || op.Kind != Release && (op.Kind != End || !op.Immediate) || done[op.Term] {
			continue
		}
		var trace *fact
		began := op.Began
		for i, f := range known {
			if f.shows(op.Term) {
				began = max(began, f.began) // it stood then, so it was ended later
			}
			if f.ended > op.Began && f.showsOver(op) && (trace == nil || f.ended < trace.ended) {
				trace = &known[i]
			}
		}
		if trace == nil {
			continue
		}
		done[op.Term] = true
		ev.facts = append(ev.facts, fact{
			what: lateEnd, instance: op.Instance, term: op.Term,
			call: op.Call, ret: trace.ret, began: min(began, trace.ended), ended: trace.ended, op: op,
		})
	}
}

// shows reports whether f says that the leadership of this term stood.
func (f fact) shows(term baton.Term) bool {
	switch f.what {
	case granted, landed, renewed, stands, released, cut:
		return f.term == term
	}
	return false
}

// showsOver reports whether f could not be said while the leadership stood that op meant to end.
func (f fact) showsOver(op Op) bool {
	switch f.what {
	case over:
		return f.term == op.Term || f.term == 0 && f.instance == op.Instance
	case vacant, released, cut:
		return f.term >= op.Term
	default:
		return f.term > op.Term
	}
}
