package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"baton"
	"baton/fence"
)

// naive is the ledger of a resource without fencing: it takes whatever comes,
// and keeps the last of it. It is there to show what fencing is for.
type naive struct {
	db    *sql.DB
	query func(string) string
}

// Adopt makes the resource t's, whosever it was.
func (n *naive) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	r, err := fence.Record{}.Adopt(resource, t) // validates
	if err != nil {
		return fence.Record{}, err
	}
	err = n.begin(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, n.query(`
			INSERT INTO fenced_resource (name, "group", max_token, instance) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE SET "group" = excluded."group", max_token = excluded.max_token, instance = excluded.instance`),
			resource, t.Group, int64(t.Term), t.InstanceID); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, n.query(`
			INSERT INTO sequence (name, last_seq, owner_token) VALUES ($1, 0, $2)
			ON CONFLICT (name) DO UPDATE SET owner_token = excluded.owner_token RETURNING last_seq`),
			resource, int64(t.Term)).Scan(&r.LastSeq)
	})
	if err != nil {
		return fence.Record{}, fmt.Errorf("adopt resource %q: %w", resource, err)
	}
	return r, nil
}

// Write runs the effect and does not ask who wants it.
func (n *naive) Write(ctx context.Context, resource string, c fence.Claim, do effect) error {
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	err := n.begin(ctx, func(tx *sql.Tx) error {
		t := c.Token()
		_, err := tx.ExecContext(ctx, n.query(`
			INSERT INTO fenced_resource (name, "group", max_token, instance) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO NOTHING`), resource, t.Group, int64(t.Term), t.InstanceID)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, n.query(`
			INSERT INTO sequence (name, last_seq, owner_token) VALUES ($1, 0, $2)
			ON CONFLICT (name) DO NOTHING`), resource, int64(t.Term))
		if err != nil {
			return err
		}
		if seq, ok := c.Seq(); ok {
			_, err := tx.ExecContext(ctx, n.query(`
				UPDATE sequence SET last_seq = $2, owner_token = $3 WHERE name = $1`),
				resource, seq, int64(t.Term))
			if err != nil {
				return err
			}
		}
		return do(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("write %v to resource %q: %w", c, resource, err)
	}
	return nil
}

// Advance implements fence.Ledger.
func (n *naive) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	return n.Write(ctx, resource, c, func(context.Context, transaction) error { return nil })
}

// Read implements fence.Ledger.
func (n *naive) Read(ctx context.Context, resource string) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	var (
		r    fence.Record
		term int64
	)
	err := n.db.QueryRowContext(ctx, n.query(`
		SELECT r."group", r.max_token, r.instance, coalesce(s.last_seq, 0)
		FROM fenced_resource r LEFT JOIN sequence s ON s.name = r.name WHERE r.name = $1`), resource).
		Scan(&r.Group, &term, &r.InstanceID, &r.LastSeq)
	if errors.Is(err, sql.ErrNoRows) {
		return fence.Record{}, nil
	}
	r.Term = baton.Term(term)
	return r, err
}

func (n *naive) begin(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, once it is committed
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
