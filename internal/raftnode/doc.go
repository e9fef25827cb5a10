// Package raftnode is what makes a process a server of a raft cluster, whatever
// the cluster replicates: a data directory that is known from any other of its name,
// a port on which only those talk to it who mean it, and raft's transport and log as
// this project wants them.
package raftnode
