// Package kubestore keeps leases in Lease objects of Kubernetes, one for each
// group, and shares them with candidates that use client-go's leaderelection on
// the same objects. Any number of processes may share them, each with a Store of
// its own.
//
// # What is promised
//
//   - Every grant, renewal and end is an update of the Lease that names the
//     resourceVersion it replaces. So of two writes one fails, and whatever the
//     API server acknowledges its etcd has committed.
//   - Time is judged by every observer on its own clock, from when it saw the
//     Lease change; package internal/observed has the argument. Wall clocks are not compared.
//   - Terms rise through restarts, failovers, deletion of the group, and deletion
//     of the Lease: the counter is another object, raised before the Lease is
//     taken. docs/stores/kubernetes.md has the argument.
//   - What Baton holds, client-go's candidates respect, and it respects what they
//     hold. Their leaderships have no term: it reads as 0.
//
// # What is not
//
//   - TTLs are whole seconds, at least two.
//   - An observer that has just begun to look counts a whole TTL from then.
//   - Nobody waits in line: candidates try with jitter.
//   - A candidate of client-go's with ReleaseOnCancel may clear a Lease that it no
//     longer holds, and another one of its kind take it at once.
//   - A cluster that is restored from a backup of etcd repeats terms, unless
//     the floor is raised first.
package kubestore
