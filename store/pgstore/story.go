package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
)

// maxPast is how many leaderships that ended the database keeps, as the function over has it.
const maxPast = 99

// tenure is one leadership of a group, over or not.
type tenure struct {
	term           baton.Term
	node, instance string
	metadata       map[string]string
	elected, ended time.Time // ended is zero while it stands
	gap            time.Duration
	reason         baton.Reason
	note           string
}

// story is what is known of a group at one moment.
type story struct {
	store string // the id of what is in the schema
	known bool   // the group has a row
	// base is the term above which the first one of this group was; of a group
	// without a row, the term that its first one will exceed.
	base baton.Term
	// whole: nothing was forgotten since.
	whole   bool
	tenures []tenure // by term, the last one may stand
	// left is what remains of the lease that stands.
	left time.Duration
}

// present is the leadership that stands, nil if there is none.
func (st *story) present() *tenure {
	if n := len(st.tenures); n > 0 && st.tenures[n-1].ended.IsZero() {
		return &st.tenures[n-1]
	}
	return nil
}

// storySQL is one statement, so all of it is of one moment. The row of the
// group comes first, then what is past, from a term on.
const storySQL = `
SELECT 0 AS part, s.id::text, l.grp IS NOT NULL, coalesce(l.base, s.floor), coalesce(l.ended, 0), baton.us(l.ends - baton.clock()),
       coalesce(l.term, 0), coalesce(l.node, ''), coalesce(l.instance, ''), l.metadata, l.elected, NULL::timestamptz, coalesce(l.gap_us, 0), '', ''
  FROM baton.store s LEFT JOIN baton.lease l ON l.grp = $1
UNION ALL
SELECT 1, '', true, 0, 0, NULL, p.term, p.node, p.instance, p.metadata, p.elected, p.ended, p.gap_us, p.reason, coalesce(p.note, '')
  FROM baton.past_term p WHERE p.grp = $1 AND p.term >= $2
 ORDER BY 1, 7`

// read tells what happened to a group from a term on.
func (s *Store) read(ctx context.Context, pool *pgxpool.Pool, group string, from baton.Term) (*story, error) {
	var st *story
	err := try(ctx, pool, func(ctx context.Context) error {
		rows, err := pool.Query(ctx, s.schema.in(storySQL), group, from)
		if err != nil {
			return err
		}
		defer rows.Close()
		st, err = scanStory(rows)
		return err
	})
	return st, err
}

func scanStory(rows pgx.Rows) (*story, error) {
	st := &story{}
	var present *tenure
	for rows.Next() {
		var (
			t              tenure
			part           int
			store          string
			known          bool
			base, count    int64
			left           *int64
			term, gap      int64
			elected, ended *time.Time
			reason         string
		)
		if err := rows.Scan(&part, &store, &known, &base, &count, &left,
			&term, &t.node, &t.instance, &t.metadata, &elected, &ended, &gap, &reason, &t.note); err != nil {
			return nil, err
		}
		t.term, t.gap, t.reason = baton.Term(term), micros(gap), baton.Reason(reason) //nolint:gosec // the database keeps it from 0 to MaxTerm
		t.elected, t.ended = value(elected), value(ended)
		if part == 1 {
			st.tenures = append(st.tenures, t)
			continue
		}
		st.store = store
		st.known, st.base, st.whole = known, baton.Term(base), count <= maxPast //nolint:gosec // as above
		if left != nil {
			present, st.left = &t, micros(*left)
		}
	}
	if present != nil {
		st.tenures = append(st.tenures, *present)
	}
	return st, rows.Err()
}

// settled is read, after writing down that the lease ran out if that is what is
// found. So the others see a leadership that stands, or one that has ended with a reason.
func (s *Store) settled(ctx context.Context, pool *pgxpool.Pool, group string, from baton.Term) (*story, error) {
	for {
		st, err := s.read(ctx, pool, group, from)
		if err != nil || st.present() == nil || st.left > 0 {
			return st, err
		}
		if err := try(ctx, pool, func(ctx context.Context) error {
			_, err := pool.Exec(ctx, s.schema.in(`SELECT baton.note_expiry($1)`), group)
			return err
		}); err != nil {
			return nil, err
		}
		s.announcer.tell(group)
	}
}

// History returns the last terms of a group, oldest first.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return nil, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	st, err := s.settled(bounded, s.pool, group, 0)
	if err != nil {
		return nil, s.calls.Fail(ctx, "history", err)
	}
	var past []baton.PastTerm
	for _, t := range st.tenures {
		past = append(past, baton.PastTerm{
			Term: t.term, NodeID: t.node, InstanceID: t.instance, ElectedAt: t.elected, EndedAt: t.ended,
			Reason: t.reason, Note: t.note, Gap: t.gap,
		})
	}
	return past, nil
}
