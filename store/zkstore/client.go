package zkstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"baton"
)

var (
	errClosed  = errors.New("the store is closed")
	errTimeout = errors.New("ZooKeeper did not answer in time")
)

// retryPause is between two attempts at a read.
const retryPause = 50 * time.Millisecond

// client is a connection to ZooKeeper and what lies below the prefix. The
// library's calls take no context; here each is bounded, and one that is not
// waited for any more ends when the connection does.
type client struct {
	conn   *zk.Conn
	events <-chan zk.Event
	at     string // the servers, for errors
	line   *lineOut
	acl    []zk.ACL
	prefix string
	place  string        // tells what is below this prefix from all else, for cursors
	hangUp time.Duration // how long a server may take before another one is tried; 0 if there is no other

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	watches watches

	lastFloor atomic.Pointer[knownFloor]
}

// The znodes below the prefix. Ids have no slash in them.
//
//	leases/GROUP                      who leads, or who led last: JSON
//	terms/GROUP                       the last term; never deleted
//	past/GROUP                        the terms that ended: JSON
//	line/GROUP/NODE~INSTANCE~NUMBER   one who waits: ephemeral, in the order of the numbers
//	policies/GROUP                    what is registered: JSON, empty when it was deleted
//	floor                             the term that all grants are above; made by an operator
func (c *client) path(elements ...string) string {
	return c.prefix + "/" + strings.Join(elements, "/")
}

var folders = []string{"leases", "terms", "past", "line", "policies"}

func connect(ctx context.Context, cfg Config) (*client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, errTimeout)
	defer cancel()
	c := &client{at: strings.Join(cfg.Servers, ", "), prefix: cfg.Prefix, acl: zk.WorldACL(zk.PermAll), line: &lineOut{greeting: cfg.Session}}
	if len(cfg.Servers) > 1 {
		c.hangUp = cfg.Timeout / 5
	}
	var err error
	c.conn, c.events, err = zk.Connect(cfg.Servers, cfg.Session, zk.WithHostProvider(&rotation{}), zk.WithDialer(c.line.dial),
		zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithEventCallback(cfg.heard))
	if err != nil {
		return nil, unavailable(err)
	}
	if err := c.greet(ctx, cfg); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// greet finds out whether this ZooKeeper will do.
func (c *client) greet(ctx context.Context, cfg Config) error {
	if cfg.Username != "" {
		c.acl = zk.AuthACL(zk.PermAll)
		if err := c.again(ctx, func(conn *zk.Conn) error {
			return conn.AddAuth("digest", []byte(cfg.Username+":"+cfg.Password))
		}); err != nil {
			return unavailable(kindOf(err))
		}
	}
	if err := c.makeFolders(ctx); err != nil {
		return unavailable(err)
	}
	var root *zk.Stat
	if err := c.again(ctx, func(conn *zk.Conn) (err error) {
		_, root, err = conn.Get(c.prefix)
		return err
	}); err != nil {
		return unavailable(kindOf(err))
	}
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%d %d %s", root.Czxid, root.Ctime, c.prefix)
	c.place = fmt.Sprintf("%016x", hash.Sum64())
	return checkVersion(ctx, c.conn.Server())
}

// unavailable makes sure that an error has a kind.
func unavailable(err error) error {
	if err == nil || baton.IsAnswer(err) || errors.Is(err, baton.ErrUnavailable) {
		return err
	}
	return &baton.UnavailableError{Op: "connect", Err: err}
}

// makeFolders creates the prefix and what is right below it. Who may not
// create is content if they are there.
func (c *client) makeFolders(ctx context.Context) error {
	var paths []string
	for i, r := range c.prefix[1:] {
		if r == '/' {
			paths = append(paths, c.prefix[:i+1])
		}
	}
	paths = append(paths, c.prefix)
	for _, f := range folders {
		paths = append(paths, c.path(f))
	}
	for _, p := range paths {
		if err := c.makeNode(ctx, p); err != nil {
			return fmt.Errorf("make znode %s: %w", p, err)
		}
	}
	return nil
}

func (c *client) makeNode(ctx context.Context, path string) error {
	err := c.again(ctx, func(conn *zk.Conn) error {
		if there, _, err := conn.Exists(path); err != nil || there {
			return err
		}
		_, err := conn.Create(path, nil, 0, c.acl)
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	})
	return kindOf(err)
}

// do is one call of the library, for as long as ctx lasts. What keeps it from
// an answer is said with the servers' addresses, which the library does not name.
func (c *client) do(ctx context.Context, call func(*zk.Conn) error) error {
	err := c.ask(ctx, call)
	if disconnected(err) || err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: %w", c.at, err)
	}
	return err
}

func (c *client) ask(ctx context.Context, call func(*zk.Conn) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed
	}
	answered := make(chan error, 1)
	c.calls.Go(func() { answered <- call(c.conn) })
	c.mu.Unlock()
	if c.hangUp > 0 {
		defer time.AfterFunc(c.hangUp, c.line.hangUp()).Stop()
	}
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// again is do, once more when the connection is lost: for what may be done twice. call
// leaves its results where nobody looks if it fails.
func (c *client) again(ctx context.Context, call func(*zk.Conn) error) error {
	for {
		err := c.do(ctx, call)
		if !disconnected(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryPause):
		}
	}
}

func disconnected(err error) bool {
	for _, lost := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// kindOf tells refusals from failures.
func kindOf(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zookeeper: %w: the znodes belong to another user, or the password is wrong: %w", baton.ErrNotAllowed, err)
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("zookeeper: %w: %w", baton.ErrUnauthenticated, err)
	}
	return err
}

func (c *client) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.conn.Close()
	c.line.cut()
	for range c.events { // closed when the library's goroutines have ended
	}
	c.calls.Wait()
}

// silent: what fails is told to whoever called.
type silent struct{}

func (silent) Printf(string, ...any) {}
