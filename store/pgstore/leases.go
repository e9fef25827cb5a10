package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"baton"
)

// answer is the type of that name in the database.
type answer struct {
	outcome                 string
	term                    int64
	node, instance          *string
	metadata                map[string]string
	ttl, left               *int64
	reason, note, successor *string
	wait                    int64
	group                   string
}

func (a *answer) columns() []any {
	return []any{&a.outcome, &a.term, &a.node, &a.instance, &a.metadata, &a.ttl, &a.left, &a.reason, &a.note, &a.successor, &a.wait}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func (a *answer) lease() baton.Lease {
	l := baton.Lease{Group: a.group, Term: baton.Term(a.term)} //nolint:gosec // the database keeps it from 0 to MaxTerm
	if a.node == nil {
		return l
	}
	l.NodeID, l.InstanceID, l.Metadata = *a.node, value(a.instance), a.metadata
	l.TTL = micros(value(a.ttl))
	// A clock that was set back is not the holder's to gain by.
	l.Remaining = min(max(0, micros(value(a.left))), l.TTL)
	if a.reason != nil {
		l.Ending = &baton.Ending{Reason: baton.Reason(*a.reason), Note: value(a.note), Successor: value(a.successor)}
	}
	return l
}

// call has a function of the database answer, in one round trip that is a
// transaction of its own.
func (s *Store) call(outer context.Context, op, group, sql string, args ...any) (*answer, error) {
	ctx, cancel := s.calls.Begin(outer)
	defer cancel()
	a := &answer{group: group}
	err := try(ctx, s.pool, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, s.schema.in(sql), args...).Scan(a.columns()...)
	})
	return a, s.calls.Fail(outer, op, err)
}

// Acquire grants a vacant group to c.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	if err := c.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	metadata, err := writeMetadata(c.Metadata)
	if err != nil {
		return baton.Lease{}, err
	}
	a, err := s.call(ctx, "acquire", group, `SELECT * FROM baton.acquire($1, $2, $3, $4, $5)`,
		group, c.NodeID, c.InstanceID, metadata, upMicros(ttl))
	if err != nil {
		return baton.Lease{}, err
	}
	lease := a.lease()
	switch a.outcome {
	case "granted":
		s.announcer.tell(group)
		return lease, nil
	case "held":
		return baton.Lease{}, &baton.HeldError{Lease: lease, RetryAfter: lease.Remaining}
	case "turn":
		s.announcer.tell(group) // it may have been this request that wrote an expiry down
		return baton.Lease{}, &baton.HeldError{Lease: lease, RetryAfter: micros(a.wait)}
	case "ended":
		return baton.Lease{}, &baton.ConflictError{
			Reason:  baton.ConflictInstanceEnded,
			Message: fmt.Sprintf("instance %s of node %q has led group %q and its leadership ended: campaign with a new instance", c.InstanceID, c.NodeID, group),
		}
	case "exhausted":
		return baton.Lease{}, &baton.ConflictError{
			Reason:  baton.ConflictTermsExhausted,
			Message: fmt.Sprintf("group %q has used up its terms: the last one is %d", group, lease.Term),
		}
	}
	return baton.Lease{}, a.strange("acquire")
}

// Renew lets exactly this leadership last for extend from now.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	a, err := s.call(ctx, "renew", id.Group, `SELECT * FROM baton.renew($1, $2, $3, $4, $5)`,
		id.Group, id.NodeID, id.InstanceID, id.Term, upMicros(extend))
	switch {
	case err != nil:
		return baton.Lease{}, err
	case a.outcome == "granted":
		return a.lease(), nil
	}
	return baton.Lease{}, a.refusal("renew", id)
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	begun := time.Now()
	a, err := s.call(ctx, "release", id.Group, `SELECT * FROM baton.release($1, $2, $3, $4)`,
		id.Group, id.NodeID, id.InstanceID, id.Term)
	switch {
	case err != nil:
		return err
	case a.outcome == "done":
		s.tellBefore(ctx, id.Group, begun)
		return nil
	}
	return a.refusal("release", id)
}

// End ends the leadership of exactly this term, or begins to.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	begun := time.Now()
	a, err := s.call(ctx, "end", group, `SELECT * FROM baton.end_term($1, $2, $3, $4, $5, $6)`,
		group, min(term, baton.MaxTerm+1), string(e.Reason), orNull(storable(e.Note)), orNull(e.Successor), e.Immediate)
	switch {
	case err != nil:
		return err
	case a.outcome == "done":
		s.tellBefore(ctx, group, begun)
		return nil
	case a.outcome == "not in line":
		return &baton.ConflictError{
			Reason:  baton.ConflictNotInLine,
			Message: fmt.Sprintf("node %q does not wait for group %q: it cannot succeed", e.Successor, group),
		}
	}
	return a.refusal("end", baton.LeaseID{Group: group, Term: term})
}

// refusal is the answer to one that does not lead.
func (a *answer) refusal(op string, id baton.LeaseID) error {
	if a.outcome != "not leader" {
		return a.strange(op)
	}
	current := a.lease()
	return &baton.NotLeaderError{ID: id, Current: &current}
}

func (a *answer) strange(op string) error {
	return &baton.UnavailableError{Op: op, Err: fmt.Errorf("the database answered %q", a.outcome)}
}

const getSQL = `SELECT '', coalesce(l.term, s.floor), l.node, l.instance, l.metadata, l.ttl_us, baton.us(l.ends - baton.clock()),
	l.ending_reason, l.ending_note, l.ending_successor, 0::bigint
	FROM baton.store s LEFT JOIN baton.lease l ON l.grp = $1`

// Get reads the group. A lease that has run out, and that nobody has written
// down yet, reads as held with nothing left.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	a, err := s.call(ctx, "get", group, getSQL, group)
	if err != nil {
		return baton.Lease{}, err
	}
	return a.lease(), nil
}

// upMicros rounds up, so that nobody gets less than was asked for.
func upMicros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// writeMetadata is JSON for a column of type json, which keeps every text;
// columns of type text and jsonb do not.
func writeMetadata(m map[string]string) (*string, error) {
	if len(m) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write metadata: %w", err)
	}
	s := string(text)
	return &s, nil
}

// storable replaces what a column of type text does not take.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
