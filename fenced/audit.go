package fenced

import (
	"context"
	"database/sql"

	"baton"
	"baton/fenced/fencedclient"
)

// maxSteps bounds how many steps an audit shows; it counts all.
const maxSteps = 100

// The audit compares each accepted write with the one before it. If no step
// falls, nothing falls. A write with several numbers starts at the first of them.
const (
	countSQL = `SELECT count(*) FROM accepted_write WHERE $1 = '' OR resource = $1`

	steps = `
	FROM (
		SELECT id, resource, kind, term, instance, coalesce(seq, 0) AS seq, numbers, at_ms,
			lag(term) OVER w AS previous_term, lag(instance) OVER w AS previous_instance, 0 AS previous_seq
		FROM accepted_write WHERE $1 = '' OR resource = $1
		WINDOW w AS (PARTITION BY resource ORDER BY id)
	) AS terms
	WHERE term < previous_term OR term = previous_term AND instance <> previous_instance`

	seqSteps = `
	FROM (
		SELECT id, resource, kind, term, instance, seq, numbers, at_ms,
			lag(term) OVER w AS previous_term, lag(instance) OVER w AS previous_instance, lag(seq) OVER w AS previous_seq
		FROM accepted_write WHERE seq IS NOT NULL AND ($1 = '' OR resource = $1)
		WINDOW w AS (PARTITION BY resource ORDER BY id)
	) AS seqs
	WHERE seq - numbers + 1 <= previous_seq`

	stepColumns = `SELECT id, resource, kind, term, instance, seq, numbers, at_ms, previous_term, previous_instance, previous_seq`

	// Ranges in the order of their first number: what reaches below the highest
	// number so far was given out before.
	duplicatesSQL = `
	SELECT coalesce(sum(CASE WHEN highest < seq THEN highest ELSE seq END - first + 1), 0)
	FROM (
		SELECT seq, seq - numbers + 1 AS first,
			max(seq) OVER (PARTITION BY resource ORDER BY seq - numbers + 1, seq, id
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
		FROM accepted_write WHERE seq IS NOT NULL AND ($1 = '' OR resource = $1)
	) AS ranges
	WHERE highest >= first`

	// Work is covered from the first piece on, each time from after where the
	// checkpoint before it ended.
	unitsSQL   = `SELECT coalesce(sum(last_unit - first_unit + 1), 0)` + covered
	redoneSQL  = `SELECT coalesce(sum(before - first_unit + 1), 0)` + covered + ` WHERE first_unit <= before`
	skippedSQL = `SELECT coalesce(sum(first_unit - before - 1), 0)` + covered + ` WHERE first_unit > before + 1`

	covered = `
	FROM (
		SELECT first_unit, last_unit, coalesce(lag(last_unit) OVER (PARTITION BY resource ORDER BY write_id), 0) AS before
		FROM covered WHERE $1 = '' OR resource = $1
	) AS pieces`
)

// Audit looks at all accepted writes, or at those of one resource.
func (s *Store) Audit(ctx context.Context, resource string) (fencedclient.Audit, error) {
	a := fencedclient.Audit{Steps: []fencedclient.Step{}}
	tx, err := s.db.BeginTx(ctx, s.reading)
	if err != nil {
		return a, err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	for _, count := range []struct {
		into  *int64
		query string
	}{
		{&a.Writes, countSQL},
		{&a.TermsFell, "SELECT count(*)" + steps},
		{&a.SeqsFell, "SELECT count(*)" + seqSteps},
		{&a.Duplicates, duplicatesSQL},
		{&a.Units, unitsSQL},
		{&a.Redone, redoneSQL},
		{&a.Skipped, skippedSQL},
	} {
		if err := tx.QueryRowContext(ctx, s.query(count.query), resource).Scan(count.into); err != nil {
			return a, err
		}
	}
	a.OK = a.TermsFell == 0 && a.SeqsFell == 0 && a.Duplicates == 0 && a.Redone == 0 && a.Skipped == 0
	for _, from := range []string{steps, seqSteps} {
		if err := s.steps(ctx, tx, from, resource, &a); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (s *Store) steps(ctx context.Context, tx *sql.Tx, from, resource string, a *fencedclient.Audit) error {
	rows, err := tx.QueryContext(ctx, s.query(stepColumns+from+" ORDER BY id LIMIT $2"), resource, maxSteps)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			step           fencedclient.Step
			term, previous int64
		)
		err := rows.Scan(&step.ID, &step.Resource, &step.Kind, &term, &step.InstanceID, &step.Seq, &step.Count, &step.AtMS,
			&previous, &step.PreviousInstanceID, &step.PreviousSeq)
		if err != nil {
			return err
		}
		step.Term, step.PreviousTerm = baton.Term(term), baton.Term(previous)
		a.Steps = append(a.Steps, step)
	}
	return rows.Err()
}
