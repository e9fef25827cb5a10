package zkstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/observed"
)

// register keeps records in znodes.
type register struct{ *client }

// counter is what the term znode of a group holds. Its version is checked, or
// raised, by every write to the group's record: a record that somebody removed
// and that was made again may have the versions of the one before.
type counter struct {
	Term baton.Term `json:"term"`
	// Ended is how many leaderships had ended when the term was granted.
	Ended uint64 `json:"ended"`
}

// versions are those of a group's znodes.
type versions struct{ counter, record int32 }

func (v versions) version() observed.Version {
	return observed.Version(fmt.Sprintf("%d/%d", v.counter, v.record))
}

// recordVersion is the part of a version that a watch can tell.
func recordVersion(v observed.Version) int32 {
	_, text, _ := strings.Cut(string(v), "/")
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return absent
	}
	return int32(n)
}

// Read reads a group's record, linearizably.
func (r register) Read(ctx context.Context, group string) (snap observed.Snapshot, err error) {
	err = r.linearized(ctx, func() error {
		snap, err = r.Peek(ctx, group)
		return err
	})
	return snap, err
}

// linearized lets reads see all that was committed before. They follow a
// transaction that checks what is always there: it is answered when a quorum has
// committed it and the server that we ask has applied it, and a read that follows
// in the same session sees no less. (Sync promises as much, but a leader that was
// deposed and does not know it answers it too.)
func (c *client) linearized(ctx context.Context, read func() error) error {
	for {
		session := c.conn.SessionID()
		err := c.again(ctx, func(conn *zk.Conn) error {
			_, err := conn.Multi(&zk.CheckVersionRequest{Path: c.prefix, Version: -1})
			return err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if err := c.makeFolders(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return kindOf(err)
		}
		if err := read(); err != nil || c.conn.SessionID() == session {
			return err
		}
		// A new session knows nothing of what the one before has seen.
	}
}

// Peek reads what the server that we are connected to has. The counter is read first: a grant
// in between shows as a record that is newer than its counter, and a write that names the two fails.
func (r register) Peek(ctx context.Context, group string) (observed.Snapshot, error) {
	v := versions{counter: absent, record: absent}
	var last counter
	text, stat, err := r.get(ctx, r.path("terms", group))
	if err != nil {
		return observed.Snapshot{}, err
	}
	if stat != nil {
		v.counter = stat.Version
		if err := json.Unmarshal(text, &last); err != nil {
			return observed.Snapshot{}, fmt.Errorf("read %s: %w", r.path("terms", group), err)
		}
	}
	if text, stat, err = r.get(ctx, r.path("leases", group)); err != nil {
		return observed.Snapshot{}, err
	}
	record := observed.Record{Ended: last.Ended, Forgotten: last.Ended}
	if stat != nil {
		v.record = stat.Version
		record = observed.Record{}
		if err := json.Unmarshal(text, &record); err != nil {
			return observed.Snapshot{}, fmt.Errorf("read %s: %w", r.path("leases", group), err)
		}
	}
	record.Term = max(record.Term, last.Term)
	if record.Holder == nil {
		floor, err := r.floor(ctx)
		if err != nil {
			return observed.Snapshot{}, err
		}
		record.Term = max(record.Term, floor)
	}
	return observed.Snapshot{Record: record, Version: v.version(), Place: r.place, Aside: v}, nil
}

// knownFloor is the floor as it was read, and the watch that tells when it is another.
type knownFloor struct {
	set  watched
	term baton.Term
}

// floor is the term that all grants are above. There is one only where an operator has made it.
// While its watch stands it is what it was: ZooKeeper tells of a change before it shows what came after.
func (c *client) floor(ctx context.Context) (baton.Term, error) {
	if known := c.lastFloor.Load(); known != nil && c.stands(known.set) {
		return known.term, nil
	}
	set, unwatched := c.watch(ctx, c.path("floor"))
	if unwatched != nil && !disconnected(unwatched) {
		return 0, unwatched
	}
	text, stat, err := c.get(ctx, c.path("floor"))
	if err != nil {
		return 0, err
	}
	var n uint64
	if stat != nil {
		n, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n > uint64(baton.MaxTerm) {
			return 0, fmt.Errorf("read %s: %q is no term", c.path("floor"), text)
		}
	}
	if unwatched == nil {
		c.lastFloor.Store(&knownFloor{set: set, term: baton.Term(n)})
	}
	return baton.Term(n), nil
}

// get reads a znode; its Stat is nil if it does not exist.
func (c *client) get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	type answer struct {
		text []byte
		stat *zk.Stat
	}
	answers := make(chan answer, 1)
	err := c.again(ctx, func(conn *zk.Conn) error {
		text, stat, err := conn.Get(path)
		if err == nil {
			answers <- answer{text, stat}
		}
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil, nil
	case err != nil:
		return nil, nil, kindOf(err)
	}
	a := <-answers
	return a.text, a.stat, nil
}

// Swap is one transaction on the record, the term and, if a leadership ends, the history.
func (r register) Swap(ctx context.Context, group string, old observed.Snapshot, next observed.Record) (observed.Snapshot, error) {
	v, ok := old.Aside.(versions)
	if !ok {
		return observed.Snapshot{}, fmt.Errorf("the snapshot of group %q is not from this register", group)
	}
	ops, v, err := r.replace(group, v, old.Record, next)
	if err != nil {
		return observed.Snapshot{}, err
	}
	if next.Ended > old.Record.Ended {
		op, err := r.remember(ctx, group, *next.Last)
		if err != nil {
			return observed.Snapshot{}, err
		}
		ops = append(ops, op)
	}
	if err := r.commit(ctx, ops); err != nil {
		return observed.Snapshot{}, err
	}
	return observed.Snapshot{Record: next, Version: v.version(), Place: r.place, Aside: v}, nil
}

// commit carries out a transaction. What it names has another version:
// observed.ErrChanged. It is not sent twice: what came of the first may not be known.
func (c *client) commit(ctx context.Context, ops []any) error {
	err := c.do(ctx, func(conn *zk.Conn) error {
		_, err := conn.Multi(ops...)
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		// It may be what the others are below that somebody removed.
		if err := c.makeFolders(ctx); err != nil {
			return fmt.Errorf("%w, and: %w", observed.ErrChanged, err)
		}
		return observed.ErrChanged
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
		return observed.ErrChanged
	}
	return kindOf(err)
}

// worn is a version after which a znode is made anew. Versions are signed numbers of 32 bits, and
// -1 is any.
const worn = 1 << 30

// replace is what a write to a record consists of, and the versions behind it. The term
// rises before anybody leads in it: in the same transaction.
func (r register) replace(group string, v versions, old, next observed.Record) ([]any, versions, error) {
	record, err := json.Marshal(next)
	if err != nil {
		return nil, v, err
	}
	term, err := json.Marshal(counter{Term: next.Term, Ended: next.Ended})
	if err != nil {
		return nil, v, err
	}
	var ops []any
	switch granted := next.Term > old.Term; {
	case v.counter == absent:
		ops = append(ops, r.create(r.path("terms", group), term))
		v.counter = 0
	case granted:
		ops = append(ops, &zk.SetDataRequest{Path: r.path("terms", group), Data: term, Version: v.counter})
		v.counter++
		if v.record >= worn {
			ops = append(ops, &zk.DeleteRequest{Path: r.path("leases", group), Version: v.record})
			v.record = absent
		}
	default:
		ops = append(ops, &zk.CheckVersionRequest{Path: r.path("terms", group), Version: v.counter})
	}
	if v.record == absent {
		ops = append(ops, r.create(r.path("leases", group), record))
		v.record = 0
	} else {
		ops = append(ops, &zk.SetDataRequest{Path: r.path("leases", group), Data: record, Version: v.record})
		v.record++
	}
	return ops, v, nil
}

func (c *client) create(path string, text []byte) *zk.CreateRequest {
	return &zk.CreateRequest{Path: path, Data: text, Acl: c.acl}
}

// remember is the write that adds a leadership to the history.
func (r register) remember(ctx context.Context, group string, p observed.Past) (any, error) {
	path := r.path("past", group)
	past, version, err := r.history(ctx, group)
	if err != nil {
		return nil, err
	}
	past = append(past, p)
	text, err := json.Marshal(past[max(0, len(past)-observed.MaxPast):])
	if err != nil {
		return nil, err
	}
	if version == absent {
		return r.create(path, text), nil
	}
	return &zk.SetDataRequest{Path: path, Data: text, Version: version}, nil
}

func (r register) history(ctx context.Context, group string) ([]observed.Past, int32, error) {
	text, stat, err := r.get(ctx, r.path("past", group))
	if err != nil || stat == nil {
		return nil, absent, err
	}
	var past []observed.Past
	if err := json.Unmarshal(text, &past); err != nil {
		return nil, absent, fmt.Errorf("read %s: %w", r.path("past", group), err)
	}
	return past, stat.Version, nil
}

// Past returns the leaderships that ended.
func (r register) Past(ctx context.Context, group string) ([]observed.Past, error) {
	past, _, err := r.history(ctx, group)
	return past, err
}

// Wait watches the record.
func (r register) Wait(ctx context.Context, group string, known observed.Version) error {
	return r.changed(ctx, r.path("leases", group), recordVersion(known))
}
