package fenced

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"baton"
	"baton/fence"
	"baton/fenced/fencedclient"
)

// transaction is what the databases' transactions have in common.
type transaction interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// effect is what a write does in the transaction that was let in.
type effect func(ctx context.Context, tx transaction) error

// ledger is a fencing ledger beside the data.
type ledger interface {
	fence.Ledger
	// Write runs the effect in a transaction that was let in to the resource, and commits it.
	Write(ctx context.Context, resource string, c fence.Claim, do effect) error
}

// Store keeps the resources in a database.
type Store struct {
	db      *sql.DB
	kind    string                    // "postgres" or "sqlite"
	query   func(query string) string // from $1 to how the database writes it
	reading *sql.TxOptions            // of a transaction that looks at one state
	ledger  ledger
	fencing bool
	allot   allotter
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Accepted is what became of a write that was let in.
type Accepted struct {
	// Fell says that a write of a later term had been accepted before: the one
	// thing that fencing is there to prevent.
	Fell bool
}

// accept puts the write on record, in its own transaction.
func (s *Store) accept(ctx context.Context, tx transaction, resource, kind string, c fence.Claim, numbers int64) (id int64, a Accepted, err error) {
	t := c.Token()
	var highest int64
	err = tx.QueryRowContext(ctx, s.query(`
		INSERT INTO accepted_write (resource, kind, term, instance, seq, numbers, at_ms, highest_term)
		VALUES ($1, $2, $3, $4, $5, $6, $7, (SELECT coalesce(max(term), 0) FROM accepted_write WHERE resource = $1))
		RETURNING id, highest_term`),
		resource, kind, int64(t.Term), t.InstanceID, seqOf(c), numbers, time.Now().UnixMilli()).Scan(&id, &highest)
	return id, Accepted{Fell: int64(t.Term) < highest}, err
}

// seqOf is the claim's number as a column: null if it has none.
func seqOf(c fence.Claim) sql.NullInt64 {
	seq, ok := c.Seq()
	return sql.NullInt64{Int64: seq, Valid: ok}
}

// Tick records a tick.
func (s *Store) Tick(ctx context.Context, resource string, c fence.Claim, tick fencedclient.Tick) (a Accepted, err error) {
	err = s.ledger.Write(ctx, resource, c, func(ctx context.Context, tx transaction) error {
		var id int64
		if id, a, err = s.accept(ctx, tx, resource, fencedclient.KindTick, c, 1); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, s.query(`INSERT INTO tick (write_id, resource, scheduled_for_ms, note) VALUES ($1, $2, $3, $4)`),
			id, resource, tick.ScheduledForMS, tick.Note)
		return err
	})
	return a, err
}

// Numbers gives out count numbers: those up to the claim's own, or the next.
func (s *Store) Numbers(ctx context.Context, resource string, c fence.Claim, count int64) (fencedclient.Numbers, Accepted, error) {
	if count < 1 || count > fencedclient.MaxCount {
		return fencedclient.Numbers{}, Accepted{}, &baton.InvalidArgumentError{Field: "count", Value: count, Want: fmt.Sprintf("1 to %d", fencedclient.MaxCount)}
	}
	last, ordered := c.Seq()
	if !ordered {
		return s.allot.numbers(ctx, s, resource, c.Token(), count)
	}
	if last < count {
		return fencedclient.Numbers{}, Accepted{}, &baton.InvalidArgumentError{Field: "seq", Value: last, Want: "the last of as many numbers as count says, from 1 on"}
	}
	a, err := s.take(ctx, resource, c, count)
	return fencedclient.Numbers{First: last - count + 1, Last: last}, a, err
}

// take puts the numbers that end with the claim's own on record. The ledger is
// shown the first of them, which must be above all that were used, and then
// holds the last.
func (s *Store) take(ctx context.Context, resource string, c fence.Claim, count int64) (a Accepted, err error) {
	last, _ := c.Seq()
	first := fence.Ordered(c.Token(), last-count+1)
	err = s.ledger.Write(ctx, resource, first, func(ctx context.Context, tx transaction) error {
		if _, err := tx.ExecContext(ctx, s.query(`UPDATE sequence SET last_seq = $1 WHERE name = $2`), last, resource); err != nil {
			return err
		}
		_, a, err = s.accept(ctx, tx, resource, fencedclient.KindSequence, c, count)
		return err
	})
	return a, err
}

// SaveCheckpoint replaces the checkpoint.
func (s *Store) SaveCheckpoint(ctx context.Context, resource string, c fence.Claim, saved fencedclient.Saved) (a Accepted, err error) {
	t := c.Token()
	err = s.ledger.Write(ctx, resource, c, func(ctx context.Context, tx transaction) error {
		var id int64
		if id, a, err = s.accept(ctx, tx, resource, fencedclient.KindCheckpoint, c, 1); err != nil {
			return err
		}
		if u := saved.Covers; u != nil {
			if _, err := tx.ExecContext(ctx, s.query(`INSERT INTO covered (write_id, resource, first_unit, last_unit) VALUES ($1, $2, $3, $4)`),
				id, resource, u.First, u.Last); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, s.query(`
			INSERT INTO checkpoint (resource, term, instance, seq, data, at_ms) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (resource) DO UPDATE SET term = excluded.term, instance = excluded.instance,
				seq = excluded.seq, data = excluded.data, at_ms = excluded.at_ms`),
			resource, int64(t.Term), t.InstanceID, seqOf(c), string(saved.Data), time.Now().UnixMilli())
		return err
	})
	return a, err
}

// Checkpoint reads it; baton.ErrNotFound if there is none.
func (s *Store) Checkpoint(ctx context.Context, resource string) (fencedclient.Checkpoint, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fencedclient.Checkpoint{}, err
	}
	var (
		p    fencedclient.Checkpoint
		term int64
		seq  sql.NullInt64
		data string
	)
	err := s.db.QueryRowContext(ctx, s.query(`SELECT term, instance, seq, data, at_ms FROM checkpoint WHERE resource = $1`), resource).
		Scan(&term, &p.InstanceID, &seq, &data, &p.AtMS)
	if errors.Is(err, sql.ErrNoRows) {
		return p, fmt.Errorf("checkpoint of resource %q: %w", resource, baton.ErrNotFound)
	}
	p.Term, p.Seq, p.Data = baton.Term(term), seq.Int64, json.RawMessage(data)
	return p, err
}

// Writes returns the accepted writes with this number; more than one only where
// fencing is off.
func (s *Store) Writes(ctx context.Context, resource string, seq int64) ([]fencedclient.AcceptedWrite, error) {
	return s.list(ctx, resource, `AND w.seq = $2 ORDER BY w.id LIMIT $3`, seq, maxPage)
}

// WritesAfter returns accepted writes in their order, those after this id, with
// what the ticks among them said.
func (s *Store) WritesAfter(ctx context.Context, resource string, id int64, limit int) ([]fencedclient.AcceptedWrite, error) {
	return s.list(ctx, resource, `AND w.id > $2 ORDER BY w.id LIMIT $3`, id, limit)
}

const maxPage = 1000

func (s *Store) list(ctx context.Context, resource, which string, args ...any) ([]fencedclient.AcceptedWrite, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, s.query(`
		SELECT w.id, w.kind, w.term, w.instance, w.seq, w.numbers, w.at_ms, t.scheduled_for_ms, t.note, c.first_unit, c.last_unit
		FROM accepted_write w LEFT JOIN tick t ON t.write_id = w.id LEFT JOIN covered c ON c.write_id = w.id WHERE w.resource = $1 `+which),
		append([]any{resource}, args...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	found := []fencedclient.AcceptedWrite{}
	for rows.Next() {
		w := fencedclient.AcceptedWrite{Resource: resource}
		var (
			term        int64
			seq, due    sql.NullInt64
			note        sql.NullString
			first, last sql.NullInt64
		)
		if err := rows.Scan(&w.ID, &w.Kind, &term, &w.InstanceID, &seq, &w.Count, &w.AtMS, &due, &note, &first, &last); err != nil {
			return nil, err
		}
		w.Term, w.Seq = baton.Term(term), seq.Int64
		if due.Valid {
			w.Tick = &fencedclient.Tick{ScheduledForMS: due.Int64, Note: note.String}
		}
		if first.Valid {
			w.Covers = &fencedclient.Units{First: first.Int64, Last: last.Int64}
		}
		found = append(found, w)
	}
	return found, rows.Err()
}
