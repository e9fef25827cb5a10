// Package observed makes leases of a plain compare-and-swap register, such as
// a znode or a Kubernetes object, that keeps no time at all.
//
// # How time is judged
//
// Every process that may grant is an observer. It counts a lease's TTL on its
// own clock from when it first saw the write that granted or renewed it, and
// ends the lease by a compare-and-swap on the version that it saw before it
// tells anyone. A renewal is a compare-and-swap too. So of a renewal and an
// ending one fails, whoever's clock said what, and until the ending has
// succeeded any observer may accept a renewal.
//
// Why nobody is let in while the holder trusts its lease: the holder counts
// from before it sent the write; the write took effect after that; an observer
// stamps its first sight when the answer that showed the write has arrived, so
// later still. Both count the same TTL. A pause of the observer makes its stamp,
// and its ending, later; a pause of the holder makes what it believes
// no longer. Offsets of clocks do not matter, rates do: a holder's clock that is
// slower than an observer's by more than the holder's margin breaks it.
//
// An observer that forgets, because it was restarted or because nobody asked it
// for long, counts anew. A lease may therefore outlive its end by up to its
// whole TTL; nobody else is let in meanwhile.
//
// # What the register owes
//
// A write that names the version it replaces, a linearizable read, and a way to
// wait for a change; see [Register]. A write whose answer was lost is found again
// by the id that it carried.
package observed
