package observed

import (
	"context"
	"errors"

	"baton"
)

// Release ends exactly this leadership.
func (l *Leases) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return l.change(ctx, "release", id, func(_ context.Context, r Record, by string) (Record, error) {
		return r.over(baton.Resigned, nil, by, stamp()), nil
	})
}

// End ends the leadership of exactly this term, or begins to. A successor is
// first shown to waits, if that is set, which says why it cannot be.
func (l *Leases) End(ctx context.Context, group string, term baton.Term, e baton.Ending, waits func(context.Context) error) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	return l.change(ctx, "end", baton.LeaseID{Group: group, Term: term}, func(ctx context.Context, r Record, by string) (Record, error) {
		if e.Successor != "" && waits != nil {
			if err := waits(ctx); err != nil {
				return Record{}, err
			}
		}
		asked := Ending{Reason: e.Reason, Note: e.Note, Successor: e.Successor, By: by}
		if e.Immediate {
			return r.over(e.Reason, &asked, by, stamp()), nil
		}
		return r.ending(asked), nil
	})
}

// names reports whether id is the leadership that r has. Node and instance are empty where only the term was named.
func names(id baton.LeaseID, r Record) bool {
	if id.NodeID == "" {
		return r.Holder != nil && id.Term != 0 && r.Holder.Term == id.Term
	}
	return r.leads(id)
}

// change replaces the record of a leadership that stands. After an answer that
// was lost, or was that to a copy, the record tells what came of it, unless others have written over it twice since.
func (l *Leases) change(ctx context.Context, op string, id baton.LeaseID, decide func(ctx context.Context, r Record, by string) (Record, error)) error {
	bounded, cancel := l.Begin(ctx, true)
	defer cancel()
	return l.Fail(ctx, op, l.changeUntil(bounded, id, decide))
}

func (l *Leases) changeUntil(ctx context.Context, id baton.LeaseID, decide func(ctx context.Context, r Record, by string) (Record, error)) error {
	failed, tried := errBusy, attempts{}
	// What was seen last will do for a first attempt: if it is old, the write fails.
	guess, guessed := l.sights.last(id.Group)
	guessed = guessed && names(id, guess.snap.Record) && !guess.lapsed(l.clock.Now())
	for ctx.Err() == nil {
		now, err := guess, error(nil)
		if !guessed {
			now, err = l.load(ctx, id.Group)
		}
		guessed = false
		if err != nil {
			return tried.settle(err)
		}
		r := now.snap.Record
		if tried.show(r) {
			return nil
		}
		if !names(id, r) {
			if tried.lost() && hidden(r, id.Term) {
				return errLost
			}
			return l.notLeader(now, id)
		}
		by := newID()
		next, err := decide(ctx, r, by)
		if err != nil {
			return tried.settle(err)
		}
		asked := l.clock.Now()
		snap, err := l.register.Swap(ctx, id.Group, now.snap, next)
		switch {
		case err == nil:
			l.sights.see(id.Group, snap, asked)
			return nil
		case baton.IsAnswer(err):
			return tried.settle(err)
		case errors.Is(err, ErrChanged):
			tried[by] = attempt{asked, true}
		default:
			failed, tried[by] = err, attempt{asked, false}
			pause(ctx, retryPause)
		}
	}
	return failed
}

// hidden reports whether a lost write on the leadership of this term may have taken effect and left no
// trace in r: another leadership has ended since, or its gentle ending was replaced by another's.
func hidden(r Record, term baton.Term) bool {
	return r.Last == nil || r.Last.Term != term || r.Last.Asked != ""
}

// show reports whether one of the writes is what ended, or is ending, the leadership.
func (a attempts) show(r Record) bool {
	if r.Last != nil {
		_, ended := a[r.Last.By]
		if _, asked := a[r.Last.Asked]; ended || asked {
			return true
		}
	}
	if r.Holder != nil && r.Holder.Ending != nil {
		_, ok := a[r.Holder.Ending.By]
		return ok
	}
	return false
}
