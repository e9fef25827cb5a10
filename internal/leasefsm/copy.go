package leasefsm

import (
	"iter"
	"maps"
	"slices"
	"strings"
)

// Copy is a record as it was when the copy was begun, encoded bit by bit while
// the record goes on changing: what is about to change is encoded before it does. So nobody
// has to stand still for as long as a million groups take.
//
// Next and Close are the record's to order with its other methods; Bytes is
// called when Next has returned false, and needs no such care.
type Copy struct {
	r    *Record
	gen  uint64 // groups changed in it, or later, are not as they were
	head []byte

	next func() (string, *group, bool)
	stop func()
	done []encodedGroup // in no order; some twice, and then the same
}

type encodedGroup struct {
	id      string
	encoded []byte
}

// Copy begins a copy, in no time. It has to be closed.
func (r *Record) Copy() *Copy {
	r.gen++
	c := &Copy{r: r, gen: r.gen}
	c.head = append(c.head, snapshotVersion)
	c.head = appendUint(c.head, uint64(r.floor))
	c.head = appendUint(c.head, r.version)
	c.head = appendUint(c.head, uint64(len(r.groups)))
	// A map may be changed while it is ranged over: each group that was there
	// from beginning to end is met once.
	c.next, c.stop = iter.Pull2(maps.All(r.groups))
	r.copies = append(r.copies, c)
	return c
}

// Next encodes up to n more groups, and reports whether there may be others.
func (c *Copy) Next(n int) (more bool) {
	for range n {
		id, g, ok := c.next()
		if !ok {
			return false
		}
		if g.changed < c.gen {
			c.add(id, g)
		}
	}
	return true
}

func (c *Copy) add(id string, g *group) {
	c.done = append(c.done, encodedGroup{id, g.appendTo(nil, id)})
}

// Close ends the copy: changes no longer care for it.
func (c *Copy) Close() {
	c.stop()
	c.r.copies = slices.DeleteFunc(c.r.copies, func(o *Copy) bool { return o == c })
}

// Bytes is what Snapshot would have returned when the copy was begun.
func (c *Copy) Bytes() []byte {
	slices.SortFunc(c.done, func(a, b encodedGroup) int { return strings.Compare(a.id, b.id) })
	size := len(c.head)
	for _, g := range c.done {
		size += len(g.encoded)
	}
	b := append(make([]byte, 0, size), c.head...)
	for i, g := range c.done {
		if i == 0 || g.id != c.done[i-1].id {
			b = append(b, g.encoded...)
		}
	}
	return b
}

// preserve encodes a group for all copies that are under way, before it changes.
func (r *Record) preserve(id string) {
	g := r.groups[id]
	if g == nil {
		return
	}
	for _, c := range r.copies {
		if g.changed < c.gen {
			c.add(id, g)
		}
	}
}

// Group ids of commands: each changes one group at most.
func (c Acquire) about() string     { return c.Group }
func (c Extend) about() string      { return c.ID.Group }
func (c Release) about() string     { return c.ID.Group }
func (c Expire) about() string      { return c.Group }
func (c End) about() string         { return c.Group }
func (c PutGroup) about() string    { return c.Group.ID }
func (c DeleteGroup) about() string { return c.ID }
func (RaiseFloor) about() string    { return "" }
