// Package httpfence fences a resource behind HTTP: a [Guard] in front of its
// handlers, and a [Transport] in the leader's client.
//
// # The protocol
//
// A request that changes something carries its claim in a header,
//
//	Baton-Fence: group=payments, term=7, instance=5f0c..., seq=42
//
// and is answered by the handler, or refused before the handler is called: 412
// with the highest leadership seen in a Baton-Fence header of the same form
// (seq being the last number let in), the kind of refusal in
// Baton-Fence-Refused, and both with a message in a JSON body. A header that
// makes no sense is 400. GET, HEAD, OPTIONS and TRACE are passed on unfenced.
//
// What the ledger does itself is asked for at the resource's own URL with the
// header Baton-Fence-Act, and the handler is not called:
//
//	POST  Baton-Fence-Act: adopt     with the claim; 200 and the record
//	POST  Baton-Fence-Act: advance   with an ordered claim; 200 and the record
//	GET   Baton-Fence-Act: read      200 and the record
//
// # How check and effect are one step
//
// A request is inside the resource from its check until its handler has
// returned. Unordered ones are inside together, ordered ones one at a time.
// Adopt first announces its term, and from that moment everything earlier is
// refused; then it waits until all that was inside has returned, and only then
// is the resource adopted. So no crowd keeps it out.
//
// A proxy may send a request twice. A copy of an ordered one that is inside
// waits until that has returned, and is then refused like any that comes late:
// whoever hears of a refusal can look whether the write landed. Unordered ones have
// nothing to be known by: a copy is one more write.
//
// The context of a handler whose leadership has passed ends when the successor
// announces itself, and a moment later its reads of the request and its
// writes of the answer fail: a client that froze half-way through its request holds
// nobody up. A handler that ignores all this and never returns does: Adopt
// ends with its context, or after Config.AdoptWait, with 503. Nothing is
// adopted then, the announcement stands, and a later Adopt waits for the same
// few. That is the only safe answer: the effect of that handler may still
// come. The way out is to restart the process.
//
// A handler's effects must be over when it returns: it must not leave work to
// goroutines, and no http.TimeoutHandler may stand between the guard and the
// handler (around the guard it may).
//
// # Where it is enough
//
// The guard protects a resource that this one process owns. It forgets with
// the process, unless Config.Ledger keeps the record: any fence.Ledger, such
// as one of baton/fence/sqlitefence. A resource with several replicas uses the
// ledger of its database inside the handler instead, so that check and effect
// are one transaction; [WriteError] and [ReadError] let it speak the same
// protocol. The guard does not authenticate: whoever may send requests may
// adopt.
package httpfence
