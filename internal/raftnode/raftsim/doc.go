// Package raftsim runs raft servers in simulated time: a network that delays, loses
// and cuts, disks that survive their process, and processes that are frozen and
// killed. It is for tests inside testing/synctest.
package raftsim
