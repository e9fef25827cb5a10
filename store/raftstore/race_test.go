//go:build race

package raftstore

// Under the race detector a simulated cluster takes ten times as long.
const defaultSeeds = 20
