// Package redisstore keeps leases in Redis. Any number of processes may share
// them, each with a Store of its own: it holds nothing that another one needs.
//
// # What is promised
//
//   - A grant is one Lua script on the group's record and its term counter, and
//     Redis runs one script at a time. So one candidate wins, and terms rise,
//     also when the group is deleted or its record is lost.
//   - A lease ends when the clock of Redis has passed the deadline in the
//     record, and is not renewed after that. What is told to the holder counts from
//     before the script ran.
//   - Renewals, releases and endings name the leadership that they are for.
//
// # What is not
//
//   - Redis replicates after it has answered. A replica that takes over may not
//     have the last grants: then there are two leaders, and a term is granted
//     twice. So use this store with fencing only; a ledger refuses the second
//     instance of a term.
//   - Unless appendfsync is always, a crash of Redis forgets the last grants too.
//   - The clock is the wall clock of Redis. A step forward ends leases early.
//   - FLUSHALL, and eviction under an allkeys policy, forget all.
//
// What Redis is set to is read when the store is opened, and told in the
// Guarantees. docs/stores/redis.md has the whole of it.
package redisstore
