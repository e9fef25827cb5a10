// Package bound is what stores share whose server ends leases by itself: etcd
// by its leases, Consul by its sessions.
//
// A group has a record that stays and says who leads, or who led last. It is
// bound to something that the server takes away when the lease is over: a key
// on an etcd lease, a lock that a Consul session holds. So the server keeps the
// time, and the record tells what was:
//
//   - Record with a holder, and bound: the holder leads.
//   - Record with a holder, and not bound: its lease has run out, and nobody has
//     written that down yet. Whoever finds it so does.
//   - Record without a holder: the group is vacant since the last leadership ended.
//
// Beside the record there are a ring of the leaderships that ended, a counter
// of terms that outlives the record, a floor that outlives the group, a line of
// keys that are bound as well, and what is registered of groups.
//
// The package is what is decided from all that, as functions of a [State] that
// was read: whether a candidate may have the group and why not, what the record
// is next, whose turn it is, which event tells it. It also says how it is written
// down. How keys are read together and changed by one transaction, what a renewal
// proves, and how changes are followed is each store's own.
package bound
