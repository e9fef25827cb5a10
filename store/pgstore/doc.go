// Package pgstore keeps leases in Postgres, a row for each group. Any number of
// processes may share them, each with a Store of its own.
//
// # What is promised
//
//   - Every request is one call of a function in the database: it locks the
//     group's row, then reads the clock, then decides. So one candidate wins,
//     and a renewal that had to wait for the lock past its deadline is refused.
//   - Grants and renewals are on disk before they are acknowledged: the
//     functions turn synchronous_commit on, whatever the session says.
//   - Terms rise through restarts, and through deletion of the group or of its row.
//   - A lease opens at its deadline. Nobody has to sweep.
//
// # What is not
//
//   - The clock is Postgres' wall clock. Set forward, it ends leases before
//     their holders know; only fencing keeps the work safe then. Set back, it
//     lets a lease last for up to another TTL.
//   - A failover to a standby that was not synchronous can lose grants and
//     renewals, and repeat terms. Guarantees says whether there is a synchronous one.
//   - Terms are what Postgres has on disk. A database that is restored from a
//     backup repeats them, unless the floor is raised first.
package pgstore
