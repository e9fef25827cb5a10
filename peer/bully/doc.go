// Package bully elects the node with the highest id among those that answer: the
// bully algorithm, over HTTP. It is here to learn from, and to be compared with.
//
// A node that misses its leader asks all higher ids for an election. If one of
// them answers, it leaves the matter to that one. If none does, it declares
// victory to all, and leads for as long as no higher id declares its own.
//
// What it does not have is a quorum. A node that cannot reach the others cannot tell
// that from their being dead, so in a partition every part has a leader of its own.
// A highest id that comes and goes takes the leadership away each time it comes.
//
// Its token is the node's own: higher than every one that it has heard of, and at
// least the wall clock's milliseconds times 1024. The tokens of two leaders in a partition
// say nothing about who is right, and could even be the same; the instance in them is not.
// A ledger lets the higher one go on and refuses the other: it keeps the data whole,
// and cannot choose the better leader.
package bully

// Caveats are sentences an operator must have read before relying on this elector.
var Caveats = []string{
	"the bully algorithm has no quorum: in a partition, or while a node is slow, two nodes lead at once, and only a ledger at the resource keeps them apart",
	"tokens are drawn by each node from what it has heard of and its wall clock: two leaders may draw them out of order",
	"whenever the node with the highest id comes back, it takes the leadership from whoever has it",
}
