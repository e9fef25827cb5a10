// Package fence makes a wrong belief in one's own leadership harmless.
//
// A lease tells who thinks they lead. A process that is frozen between looking
// at its lease and writing wakes up and writes, whatever the lease says by
// then. So the check has to live where the data lives: beside each protected
// resource a ledger remembers the latest leadership, and refuses the past.
//
// # The rules
//
// A ledger holds one [Record] per resource: group, term, instance, and the
// number of the last ordered write. Check and effect are one atomic step.
//
//   - Adopt, then read, then write. [Ledger.Adopt] raises the resource's term
//     and returns the record. It waits for the writes that are under way, and
//     none of an earlier term lands after it returned. A leader adopts all
//     the resources it will write before it reads any that its writes depend
//     on. The first Adopt creates the record and binds the group.
//   - A write shows a [Claim]. It never raises the term: a term above the
//     record's is a [NotAdoptedError]. A lower term, or the same term from
//     another instance, is a [StaleError]. Another group is a [WrongGroupError].
//   - Where order matters the claim is [Ordered]: its number must exceed the
//     last one under any term, else it is a [RepeatError]. [Sequence] allots
//     the numbers, and finds out what became of a write whose answer was lost.
//   - A StaleError ends the leadership whose token was refused, if the call's
//     context is that leadership's (see [Report]). A RepeatError does not.
//
// # The ledgers
//
// The ledger has to be part of whatever makes the write atomic, so there is one
// per kind of place: baton/fence/pgfence, baton/fence/sqlitefence,
// baton/fence/redisfence, baton/fence/httpfence. Each has its own way of
// joining check and effect, and each passes baton/fence/fencetest. [Memory] is
// the one for data that lives and dies with the process.
package fence
