package raftstore

import (
	"fmt"
	"sync"
	"time"

	"baton"
)

// leadership names one in the checker.
type leadership struct {
	group string
	term  baton.Term
}

// checker holds what servers promised and clients believed against what
// happened, in the one true time of the simulation.
type checker struct {
	mu       sync.Mutex
	answers  int
	problems []string

	leaders  map[leadership]string    // who was granted it, by instance
	newest   map[string]baton.Term    // of each group, as it was first applied anywhere
	promised map[leadership]time.Time // by any server that answered: it lasts until then
	expired  map[leadership]time.Time // when that was first applied anywhere
	asked    map[leadership]bool      // its holder gave it up, or it was broken by force
	beliefs  map[leadership]belief
}

type belief struct {
	client string
	until  time.Time
}

func newChecker() *checker {
	return &checker{
		leaders: map[leadership]string{}, newest: map[string]baton.Term{}, promised: map[leadership]time.Time{},
		expired: map[leadership]time.Time{}, asked: map[leadership]bool{}, beliefs: map[leadership]belief{},
	}
}

func (c *checker) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report(format, args...)
}

func (c *checker) report(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// answered is called as an answer leaves the server that leads the cluster.
func (c *checker) answered(q request, a response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers++
	if q.Op != "acquire" && q.Op != "renew" {
		return
	}
	l := leadership{a.Lease.Group, a.Lease.Term}
	until := time.Now().Add(a.Lease.Remaining)
	if at, ok := c.expired[l]; ok && until.After(at) {
		c.report("%s term %d is acknowledged for another %v, %v after it expired", l.group, l.term, a.Lease.Remaining, time.Since(at))
	}
	if until.After(c.promised[l]) {
		c.promised[l] = until
	}
	if was, ok := c.leaders[l]; ok && was != a.Lease.InstanceID {
		c.report("%s term %d is acknowledged to %s and was granted to %s", l.group, l.term, a.Lease.InstanceID, was)
	}
}

// applied is called as any server applies an event.
func (c *checker) applied(e baton.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := leadership{e.Group, e.Term}
	if e.Type == baton.LeaderChanged {
		was, known := c.leaders[l]
		switch {
		case known && was != e.InstanceID:
			c.report("%s term %d was granted to %s and to %s", e.Group, e.Term, was, e.InstanceID)
		case !known && e.Term <= c.newest[e.Group]:
			c.report("%s term %d was granted after term %d", e.Group, e.Term, c.newest[e.Group])
		case !known:
			c.leaders[l], c.newest[e.Group] = e.InstanceID, e.Term
		}
		return
	}
	if e.Reason != baton.Expired {
		if !c.asked[l] {
			c.report("%s term %d ended with %s, for which nobody had asked", e.Group, e.Term, e.Reason)
		}
		return
	}
	if _, known := c.expired[l]; known {
		return
	}
	c.expired[l] = time.Now()
	if left := time.Until(c.promised[l]); left > 0 {
		c.report("%s term %d expired %v before what was acknowledged", e.Group, e.Term, left)
	}
}

// askedFor: this leadership may end before its time.
func (c *checker) askedFor(group string, term baton.Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[leadership{group, term}] = true
}

// believe is called as a client learns that it leads.
func (c *checker) believe(client string, lease baton.Lease, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := leadership{lease.Group, lease.Term}
	now := time.Now()
	if !until.After(now) {
		return
	}
	for other, b := range c.beliefs {
		if other.group == l.group && other.term != l.term && b.until.After(now) {
			c.report("%s believes to lead %s in term %d, and %s in term %d for another %v", client, l.group, l.term, b.client, other.term, b.until.Sub(now))
		}
	}
	if until.After(c.beliefs[l].until) {
		c.beliefs[l] = belief{client, until}
	}
}

func (c *checker) disbelieve(id baton.LeaseID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.beliefs, leadership{id.Group, id.Term})
}

func (c *checker) granted(group string, term baton.Term) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.leaders[leadership{group, term}]
	return ok
}
