package zkstore

import "github.com/go-zookeeper/zk"

// Hearing lets f hear all that ZooKeeper tells a store of this configuration without being asked.
func (c Config) Hearing(f func(zk.Event)) Config {
	c.heard = f
	return c
}

// Die lets the store hear and say nothing any more, as if its process had died. ZooKeeper is not told.
func (s *Store) Die() { s.line.cut() }

// Server is the one that the store is connected to.
func (s *Store) Server() string { return s.conn.Server() }
