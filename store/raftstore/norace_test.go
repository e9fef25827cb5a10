//go:build !race

package raftstore

const defaultSeeds = 200
