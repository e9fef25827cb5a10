package pgfence_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/pgfence"
	"baton/internal/testserver"
)

// BenchmarkCost compares transactions that write one row, fenced and not, with
// every commit on disk.
func BenchmarkCost(b *testing.B) {
	pool := open(b, testserver.Shared(b, testserver.Postgres).Direct)
	tok := token(5, "a")
	claim := fence.Unordered(tok)
	args := row("log", claim, "value")

	ledgers := map[sql.IsolationLevel]viaWrite{}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelSerializable} {
		ledgers[level] = newLedger(b, pool, pgfence.Config{Isolation: level})
	}
	mustAdopt(b, ledgers[sql.LevelReadCommitted], "log", tok)

	insert := func(ctx context.Context, tx pgfence.Tx) error {
		_, err := tx.Exec(ctx, insertSQL, args...)
		return err
	}
	unfenced := func(level pgx.TxIsoLevel) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			return retry(func() error {
				return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return insert(ctx, tx) })
			})
		}
	}
	fenced := func(level sql.IsolationLevel) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			return retry(func() error { return ledgers[level].Write(ctx, "log", claim, insert) })
		}
	}
	b.Run("Write", func(b *testing.B) {
		fencetest.Cost(b, unfenced(pgx.ReadCommitted), fenced(sql.LevelReadCommitted))
	})
	b.Run("WriteOfFive", func(b *testing.B) {
		five := func(ctx context.Context, tx pgfence.Tx) error {
			for range 5 {
				if err := insert(ctx, tx); err != nil {
					return err
				}
			}
			return nil
		}
		fencetest.Cost(b,
			func(ctx context.Context, _ int) error {
				return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return five(ctx, tx) })
			},
			func(ctx context.Context, _ int) error {
				return ledgers[sql.LevelReadCommitted].Write(ctx, "log", claim, five)
			})
	})
	b.Run("Serializable", func(b *testing.B) {
		fencetest.Cost(b, unfenced(pgx.Serializable), fenced(sql.LevelSerializable))
	})
	fencedBatch := func(ctx context.Context, _ int) error {
		batch := new(pgx.Batch)
		batch.Queue(insertSQL, args...)
		return ledgers[sql.LevelReadCommitted].SendBatch(ctx, "log", claim, batch)
	}
	b.Run("BatchForTransaction", func(b *testing.B) {
		fencetest.Cost(b, unfenced(pgx.ReadCommitted), fencedBatch)
	})
	b.Run("BatchForBatch", func(b *testing.B) {
		fencetest.Cost(b,
			func(ctx context.Context, _ int) error {
				batch := new(pgx.Batch)
				batch.Queue(insertSQL, args...)
				return pool.SendBatch(ctx, batch).Close()
			}, fencedBatch)
	})
	b.Run("Admit", func(b *testing.B) {
		fencetest.Cost(b, unfenced(pgx.ReadCommitted), func(ctx context.Context, _ int) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := pgfence.Admit(ctx, tx, "log", claim); err != nil {
					return err
				}
				return insert(ctx, tx)
			})
		})
	})
	b.Run("SQL", func(b *testing.B) {
		db := stdlib.OpenDBFromPool(pool)
		defer func() { _ = db.Close() }()
		ledger := newSQLLedger(b, pool, pgfence.Config{})
		plain := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, insertSQL, args...)
			return err
		}
		fencetest.Cost(b,
			func(ctx context.Context, _ int) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if err := plain(ctx, tx); err != nil {
					return err
				}
				return tx.Commit()
			},
			func(ctx context.Context, _ int) error { return ledger.Write(ctx, "log", claim, plain) })
	})
	// Ordered writes to one resource come one after the other by nature. Each
	// writer has a resource of its own here.
	b.Run("Ordered", func(b *testing.B) {
		var (
			mu        sync.Mutex
			sequences = map[int]*fence.Sequence{}
		)
		sequence := func(ctx context.Context, writer int) (*fence.Sequence, error) {
			mu.Lock()
			defer mu.Unlock()
			if sequences[writer] == nil {
				s, err := fence.Adopt(ctx, ledgers[sql.LevelReadCommitted], resourceOf(writer), tok)
				if err != nil {
					return nil, err
				}
				sequences[writer] = s
			}
			return sequences[writer], nil
		}
		fencetest.Cost(b, unfenced(pgx.ReadCommitted), func(ctx context.Context, writer int) error {
			s, err := sequence(ctx, writer)
			if err != nil {
				return err
			}
			_, err = s.Do(ctx, fence.Write{
				Landed: fence.Resend,
				Send: func(ctx context.Context, c fence.Claim) error {
					return ledgers[sql.LevelReadCommitted].Write(ctx, resourceOf(writer), c, insert)
				},
			})
			return err
		})
	})
}

func resourceOf(writer int) string { return "log-" + string(rune('a'+writer)) }
