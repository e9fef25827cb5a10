package testserver

// Consul is a Consul server that keeps its data on disk, a cluster of one. It
// is a heavy kind.
const Consul Kind = "consul"
