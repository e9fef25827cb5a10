//go:build race

package baton_test

// Under the race detector a simulated fleet takes ten times as long.
const defaultSeeds = 50
