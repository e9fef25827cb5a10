//go:build !race

package baton_test

const defaultSeeds = 1000
