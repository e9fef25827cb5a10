//go:build baton_verifyleader

package raftstore

// A server built with this tag is broken: raft.VerifyLeader takes the place of
// the round. It is there to see that the tests with real processes notice.
func init() { broken = &trial{verifiesLeader: true} }
