package raftstore

import (
	"slices"

	"baton"
)

// Guarantees says what a raft cluster can promise, before one is opened.
func Guarantees() baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}
