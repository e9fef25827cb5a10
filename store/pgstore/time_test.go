package pgstore_test

import (
	"errors"
	"testing"
	"time"

	"baton"
	"baton/storetest/drill"
)

// A renewal that waits for the row until its lease has run out is refused: the
// clock is read when the lock is held. The same test sees a function that reads it before.
func TestTheClockIsReadBehindTheLock(t *testing.T) {
	t.Parallel()
	renewLate := func(t *testing.T, o *one) error {
		for group := range drill.Tries(t) {
			l := o.lead(group, "a", time.Second)
			tx := o.begin()
			if _, err := tx.Exec(t.Context(), o.in(`SELECT FROM baton.lease WHERE grp = $1 FOR UPDATE`), group); err != nil {
				t.Fatal(err)
			}
			renewed := make(chan error, 1)
			go func() {
				_, err := o.Renew(t.Context(), l.ID(), time.Second)
				renewed <- err
			}()
			o.blocked(1)
			inTime := ask[bool](o, `SELECT ends > clock_timestamp() FROM baton.lease WHERE grp = $1`, group)
			drill.Eventually(t, "the lease's end", func() bool {
				return ask[bool](o, `SELECT ends < clock_timestamp() FROM baton.lease WHERE grp = $1`, group)
			})
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := within(t, "the renewal's answer", renewed)
			if inTime { // and not held up until the lease had run out
				return err
			}
		}
		return nil
	}
	t.Run("as it is", func(t *testing.T) {
		t.Parallel()
		wantKind(t, "a renewal that waited past the end of its lease", renewLate(t, newOne(t)), baton.ErrNotLeader)
	})
	for name, body := range map[string]string{
		"clock before lock": `DECLARE l baton.lease; at timestamptz := baton.clock();
			BEGIN
				l := baton.settle(baton.lock(g), at);
				IF l.node = its_node AND l.term = its_term THEN RETURN baton.extend(l, for_us, at); END IF;
				RETURN baton.tell('not leader', l, at);
			END`,
		"transaction's clock": `DECLARE l baton.lease;
			BEGIN
				l := baton.settle(baton.lock(g), now());
				IF l.node = its_node AND l.term = its_term THEN RETURN baton.extend(l, for_us, now()); END IF;
				RETURN baton.tell('not leader', l, now());
			END`,
	} {
		t.Run("mutant: "+name, func(t *testing.T) {
			t.Parallel()
			o := newOne(t)
			o.exec(`CREATE OR REPLACE FUNCTION baton.renew(g text, its_node text, its_instance text, its_term bigint, for_us bigint)
				RETURNS baton.answer LANGUAGE plpgsql AS $$ ` + body + ` $$`)
			if err := renewLate(t, o); err != nil {
				t.Errorf("the mutant answered %v: this test does not see what it is for", err)
			}
		})
	}
}

// Nobody is granted a group whose row was locked when the lease ran out before
// the lock is free; then the first to get it is.
func TestACandidateThatWaitedForTheRowIsJudgedByTheTimeItGotIt(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	l := o.lead("g", "a", time.Second)
	tx := o.begin()
	if _, err := tx.Exec(t.Context(), o.in(`SELECT FROM baton.lease WHERE grp = 'g' FOR UPDATE`)); err != nil {
		t.Fatal(err)
	}
	type result struct {
		lease baton.Lease
		err   error
	}
	results := make(chan result, 2)
	for _, i := range []string{"b", "c"} {
		go func() {
			l, err := o.Acquire(t.Context(), "g", candidate(i), time.Minute)
			results <- result{l, err}
		}()
	}
	o.blocked(2)
	drill.Eventually(t, "the lease's end", func() bool {
		return ask[bool](o, `SELECT ends < clock_timestamp() FROM baton.lease WHERE grp = 'g'`)
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, second := within(t, "an answer", results), within(t, "an answer", results)
	if first.err != nil {
		first, second = second, first
	}
	if first.err != nil || first.lease.Term <= l.Term || !errors.Is(second.err, baton.ErrHeld) {
		t.Errorf("got %+v and %+v: want one granted, one held", first, second)
	}
}

// set replaces the clock of the store by one that is off.
func (o *one) setClock(off time.Duration) {
	o.t.Helper()
	o.exec(`CREATE OR REPLACE FUNCTION baton.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		$$ SELECT clock_timestamp() + interval '` + off.String() + `' $$`)
}

// What the caveat says: a clock that is set forward ends a lease whose holder
// still trusts it. The term is higher, so a ledger refuses the holder.
func TestAClockSetForwardBreaksTheLease(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	a := o.lead("g", "a", time.Minute)
	o.setClock(2 * time.Minute)
	b := o.lead("g", "b", time.Minute)
	if b.Term <= a.Term {
		t.Errorf("term %d after %d", b.Term, a.Term)
	}
	_, err := o.Renew(t.Context(), a.ID(), time.Minute)
	wantKind(t, "renewal by the one that was ended", err, baton.ErrNotLeader)
}

// A clock that is set back does not keep a group shut for as long as it was
// off: from the first look on the lease lasts for its TTL at most, and not less either.
func TestAClockSetBackKeepsTheLeaseForOneTTLAtMost(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	a := o.lead("g", "a", 2*time.Second)
	o.setClock(-time.Hour)
	looked := time.Now() // or later: this process may be held up
	if l, err := o.Get(t.Context(), "g"); err != nil || l.Remaining > a.TTL {
		t.Errorf("an hour back, %+v, %v is read: want at most %v left", l, err, a.TTL)
	}
	var won baton.Lease
	drill.Eventually(t, "the group open", func() bool {
		var err error
		won, err = o.Acquire(t.Context(), "g", candidate("b"), time.Minute)
		if err != nil && !errors.Is(err, baton.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	if early := a.TTL - time.Since(looked); early > 10*time.Millisecond || won.Term <= a.Term {
		t.Errorf("granted term %d, %v before a TTL has passed since somebody looked", won.Term, early)
	}
	// The line goes on, too.
	called := o.queue("g", "c")
	o.release(won)
	within(t, "the next one called", called)
}
