package raftpeer

import (
	"fmt"
	"sync"
	"time"

	"baton"
)

// checker holds what peers trusted against each other, in the one true time of
// the simulation.
type checker struct {
	mu       sync.Mutex
	problems []string
	holders  map[baton.Term]string
	newest   baton.Term // that was trusted
	beliefs  map[baton.Term]belief
	reasons  map[baton.Reason]int
	lost     map[baton.Term]bool
	begun    map[baton.Term]string // instances, as observers were told
}

type belief struct {
	node  string
	until time.Time
}

func newChecker() *checker {
	return &checker{holders: map[baton.Term]string{}, beliefs: map[baton.Term]belief{}, reasons: map[baton.Reason]int{}, lost: map[baton.Term]bool{}, begun: map[baton.Term]string{}}
}

func (c *checker) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report(format, args...)
}

func (c *checker) report(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *checker) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holders)
}

// trusts is called as a node begins to lead in a term, and with every confirmation.
func (c *checker) trusts(node string, term baton.Term, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.holders[term]; ok && was != node {
		c.report("term %d is %s's and %s's", term, was, node)
	}
	c.holders[term] = node
	now := time.Now()
	if !until.After(now) {
		return
	}
	if term < c.newest {
		c.report("%s trusts term %d for another %v after term %d", node, term, until.Sub(now), c.newest)
	}
	c.newest = max(c.newest, term)
	for other, b := range c.beliefs {
		if other != term && b.until.After(now) {
			c.report("%s leads in term %d, and %s in term %d for another %v", node, term, b.node, other, b.until.Sub(now))
		}
	}
	if until.After(c.beliefs[term].until) {
		c.beliefs[term] = belief{node, until}
	}
}

// ended: the work of this term has stopped.
func (c *checker) ended(term baton.Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.beliefs, term)
}

// died: a node that is gone does no work.
func (c *checker) died(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for term, b := range c.beliefs {
		if b.node == node {
			delete(c.beliefs, term)
		}
	}
}

// observed is called with all that any node is told.
func (c *checker) observed(node string, e baton.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Type {
	case baton.LeaderChanged:
		if was, ok := c.begun[e.Term]; ok && was != e.InstanceID {
			c.report("%s is told that term %d is %s's, and it is %s's", node, e.Term, e.InstanceID, was)
		}
		c.begun[e.Term] = e.InstanceID
	case baton.LeaderLost:
		if e.Term > 0 && !c.lost[e.Term] {
			c.lost[e.Term] = true
			c.reasons[e.Reason]++
		}
	}
}

// leads is who leads right now, as of the last term that was trusted; nobody if it is over.
func (c *checker) leads() (node string, term baton.Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.beliefs[c.newest]; b.until.After(time.Now()) {
		node = b.node
	}
	return node, c.newest
}
