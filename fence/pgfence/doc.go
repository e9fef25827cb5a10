// Package pgfence is the fencing ledger for data in PostgreSQL. See baton/fence
// for the rules.
//
// The check is one statement in the transaction that does the writing:
//
//	tx, err := pool.Begin(ctx)
//	...
//	if err := pgfence.Admit(ctx, tx, "invoices", fence.Unordered(leadership.Token())); err != nil {
//		return err
//	}
//	_, err = tx.Exec(ctx, "insert into invoices ...")
//
// or [Ledger.Write], where the check travels with the first statement, or
// [Ledger.SendBatch], which does everything in one. [SQLLedger] and [AdmitSQL]
// are for database/sql.
//
// # How it works
//
// Admit takes a shared advisory lock on the resource, held until the
// transaction ends, and then reads the record. Adopt takes that lock alone, in
// a transaction of its own, and raises the term. So whoever is let in has
// committed or failed before Adopt returns, and whoever comes later sees the
// new term. Postgres queues lock requests: writers that come after a waiting
// Adopt wait behind it, so no crowd of them keeps it out. A refusal is an error
// of the statement: the transaction is aborted, and cannot be committed even
// if the error is overlooked.
//
// It is right under READ COMMITTED and above. Under REPEATABLE READ and
// SERIALIZABLE a write that was overtaken by Adopt may fail with a
// serialization error (40001) first, and as stale when it is tried again.
//
// # A leader that freezes in its transaction
//
// Admit sets the transaction's idle_in_transaction_session_timeout and
// statement_timeout to what is left of the leadership, unless they are shorter
// already: the server ends the transaction when nobody else can. That is too
// late where a leadership was ended early, and it bounds each wait, not their
// sum. So an Adopt that has waited for [Config].EvictAfter disconnects those
// that still hold the resource. It can only be in the way of leaderships that
// are over; one whose token is refused evicts nobody. pg_terminate_backend needs
// the same role, or pg_signal_backend; without it Adopt waits for the timeouts. Give
// Adopt more time than EvictAfter, or it ends before it has thrown anybody out.
// A transaction that was prepared (PREPARE TRANSACTION) keeps the resource
// until it is committed or rolled back: no Adopt gets past it.
//
// # What the caller must do
//
// Admit comes first in the transaction, and not inside a savepoint: rolling
// back to one gives the lock away. One transaction may be let in to several
// resources. The tables and functions are installed by [Migrate], and found
// through the search_path. What replicates asynchronously can lose an
// adoption at failover, as it can lose any commit.
package pgfence
