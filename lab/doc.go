// Package lab runs experiments on fleets of real processes: it starts them,
// loads them, harms them, and checks what came of it.
//
// # How an experiment runs
//
// An [Experiment] has a question and a few arms. An [Arm] is a fleet, a script
// of what is done to it, and the checks of its record. For each arm the frame
// starts nodes, a protected resource and a proxy between nodes and backend, all
// as processes, drives a bounded load of requests for numbers, lets the script
// harm the leader with baton/cmd/chaos, and collects a [Record]: what the nodes
// logged, what the resource accepted and refused, what clients were given. All
// times in it are readings of one clock, that of baton/internal/fleet.
//
// A [Backend] is what the fleets elect with: a row of a table says how its server
// is started and what it cannot do. A [Profile] says how much is done, and how many fleets
// run side by side: more than one if only right and wrong matter. Each
// experiment on each backend has a result of its own, so that a run which was cut off
// is gone on with.
//
// # What is checked
//
// Leaders are counted in two ways. By belief a node leads while its work goes
// on, as it logged itself. By effect a leadership leads from its first accepted
// write to its last. The second must never be more than one. The first may be,
// after a pause that no program can notice in time: then the resource refuses.
//
// What the machine is late with is not held against nodes. One that was killed has acted
// until then, however long it takes to be gone. One whose work was to stop and stood still has acted until it
// did not trust its lease any more, and until its last request had left. A write that was sent under a lease, and
// arrived after it, was late on the way.
//
// What a run cannot know it does not claim: the stamps of accepted writes are
// in milliseconds, so the order of writes is taken from the resource's own
// numbering, never from stamps.
//
// # Seeds
//
// The seed decides all that the lab decides: which node has which clock skew and
// when, between two renewals, a fault strikes. The scheduling of processes is
// the machine's.
package lab
