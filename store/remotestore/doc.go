// Package remotestore is the Go client of a Baton server: a [baton.Store] over
// its HTTP API, so that an elector runs on a remote server as on any other
// store, and a [Client] with the API's own words for tools.
//
// # Several servers
//
// Given several addresses of one cluster, a call goes to the server that
// answered last, and moves on when it is refused, cut off, too slow, or told
// that the server cannot decide. A server that asked for a pause (Retry-After)
// is left alone for that long. After two rounds, or Config.Timeout, the call fails
// with baton.ErrUnavailable.
//
// # What repetition may not do
//
// A holder counts its lease from before it called Renew or Acquire. A repetition inside
// that call is answered later, so the evidence only gets older: a lease is
// never trusted for longer because the client tried again.
//
// Every request names an instance or a term, so a repeated one changes
// nothing that the first did not. Its answer can mislead, though: a release that is
// repeated because its answer was lost may be told that it does not
// lead. After an attempt of unknown outcome
//
//   - Release, End and DeleteGroup take "not leader" and "not found" for
//     success: what was asked for is so;
//   - any other refusal, but of a renewal or a wait in line, is reported as
//     ErrUnavailable: it is about the last attempt, and of a conflict it cannot be
//     told whose change is there;
//   - a step-down that names no term is not repeated at all: it would end
//     whoever leads by then.
//
// Only what a Baton server says in its own words is an answer. What a gateway
// says in its place, whatever the status, leaves the outcome unknown.
package remotestore
