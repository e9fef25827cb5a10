// Package fenced is the protected resource of the fleet: a small store of
// ticks, sequences and checkpoints, in Postgres or SQLite, that refuses the
// writes of past leaders. baton/cmd/fenced is the program, and
// baton/fenced/fencedclient talks to it.
//
// # Interface
//
// Writes carry the token in the header Baton-Fence, as baton/fence/httpfence
// describes it, with or without a number, and are refused as described there.
//
//	POST /v1/resources/{r}/adopt                             the record
//	POST /v1/resources/{r}/advance                           an empty ordered write; the record
//	POST /v1/resources/{r}/ticks       {scheduled_for_ms, note?}
//	POST /v1/resources/{r}/sequence    {count}               {first, last}
//	PUT  /v1/resources/{r}/checkpoint  {data, covers: {first, last}?}
//	GET  /v1/resources/{r}/checkpoint                        {data, term, instance_id, seq, at_ms}
//	GET  /v1/resources/{r}                                   the record
//	GET  /v1/resources/{r}/writes/{seq}                      {writes: [...]}: those with this number
//	GET  /v1/resources/{r}/writes?after=&limit=              {writes: [...]}: all, by id
//	GET  /v1/audit?resource=                                 see fencedclient.Audit
//	GET  /healthz /metrics
//
// A sequence gives out the numbers that end with the claim's own. Without one
// it gives out the next, and commits in one transaction what many ask for while
// another commit is under way.
//
// Every accepted write is also a line in an append-only table, in the same
// transaction; the audit is SQL over that table.
package fenced
