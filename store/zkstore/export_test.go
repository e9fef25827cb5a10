package zkstore

import "github.com/go-zookeeper/zk"

// Hearing lets f hear all that ZooKeeper tells a store of this configuration without being asked.
func (c Config) Hearing(f func(zk.Event)) Config {
	c.heard = f
	return c
}
