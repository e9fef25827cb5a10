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

// HangUp ends the connection. The store goes on with another, in the same session.
func (s *Store) HangUp() { s.line.hangUp()() }

// MissFloor has the watch on the floor never fire, as one that ZooKeeper was not asked for rightly.
func (s *Store) MissFloor() {
	known := *s.lastFloor.Load()
	known.set.fired = make(chan zk.Event)
	s.lastFloor.Store(&known)
	s.watches.keep(s.path("floor"), known.set)
}
