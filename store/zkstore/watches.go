package zkstore

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"
)

// absent is the version of a znode that does not exist.
const absent int32 = -1

// watches are those that ZooKeeper has been asked for and that have not fired.
// They cannot be taken back, so who waits for the same again shares one.
type watches struct {
	mu      sync.Mutex
	byPath  map[string]watched
	sweepAt int
}

type watched struct {
	version    int32 // of the znode when the watch was set
	fired      <-chan zk.Event
	connection int64 // that it was set on
}

func (w watched) over() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// stands reports whether the watch would have fired had its znode changed. The library sets its
// watches again on a new connection, but may say that it has seen all that the first answer
// there has come after: then ZooKeeper does not tell of a change before that.
func (c *client) stands(w watched) bool {
	return !w.over() && w.connection == c.line.dialled.Load()
}

func (w *watches) find(path string) (watched, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.byPath[path]
	return found, ok
}

func (w *watches) keep(path string, set watched) {
	const few = 256
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byPath == nil {
		w.byPath, w.sweepAt = map[string]watched{}, few
	}
	w.byPath[path] = set
	if len(w.byPath) > w.sweepAt {
		for path, set := range w.byPath {
			if set.over() {
				delete(w.byPath, path)
			}
		}
		w.sweepAt = max(few, 2*len(w.byPath))
	}
}

// watch is the watch on a znode that has not fired, or a new one.
func (c *client) watch(ctx context.Context, path string) (watched, error) {
	if set, ok := c.watches.find(path); ok && c.stands(set) {
		return set, nil
	}
	set, connection := make(chan watched, 1), c.line.dialled.Load()
	err := c.do(ctx, func(conn *zk.Conn) error {
		there, stat, fired, err := conn.ExistsW(path)
		if err != nil {
			return err
		}
		w := watched{version: absent, fired: fired, connection: connection}
		if there {
			w.version = stat.Version
		}
		c.watches.keep(path, w)
		set <- w
		return nil
	})
	if err != nil {
		return watched{}, kindOf(err)
	}
	return <-set, nil
}

// changed returns nil when the znode may have another version than this one,
// at once if it has. It may return for no reason, such as a new session.
func (c *client) changed(ctx context.Context, path string, known int32) error {
	set, err := c.watch(ctx, path)
	switch {
	case disconnected(err):
		return nil // whoever waits looks next, and finds out whether it can be reached
	case err != nil:
		return err
	case set.version != known:
		return nil
	}
	return set.wait(ctx)
}

// touched returns nil when something may have happened to the znode, at once if it does not exist.
func (c *client) touched(ctx context.Context, path string) error {
	set, err := c.watch(ctx, path)
	switch {
	case disconnected(err):
		return nil
	case err != nil:
		return err
	case set.version == absent:
		return nil
	}
	return set.wait(ctx)
}

func (w watched) wait(ctx context.Context) error {
	select {
	case <-w.fired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
