// Package fleet is what the programs of a fleet share: the file that names its
// nodes, what nodes say over HTTP, and the events that they log.
//
// The programs are baton/cmd/node, which takes part in elections and does the
// leader's work, and baton/cmd/chaos, which kills, cuts off and freezes leaders.
// Their insides are the packages below this one.
package fleet
