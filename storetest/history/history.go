// Package history records what clients of a store saw, and checks that a store
// which keeps its promises could have answered them so.
//
// The check is linearizability against a lease: at most one holder, terms that
// only rise, a lease that is not given away before the promise to its holder
// has ended. Porcupine searches; [Check] says ok, illegal or unknown, and
// unknown is not a pass.
package history

import (
	"context"
	"fmt"
	"sync"
	"time"

	"baton"
	"baton/storetest/internal/capability"
)

// Kind is what a client asked for.
type Kind string

// The requests that are recorded. Watches and waits in line promise nothing
// that a history could break.
const (
	Acquire Kind = "acquire"
	Renew   Kind = "renew"
	Release Kind = "release"
	Get     Kind = "get"
	End     Kind = "end"
)

// Op is one request and its answer.
type Op struct {
	Client string
	Kind   Kind
	Group  string
	// Instance and Term are what the request named; Term is 0 for Acquire and Get.
	Instance string
	Term     baton.Term
	// TTL is what Acquire or Renew asked for.
	TTL time.Duration
	// Immediate is of End.
	Immediate bool

	// Call and Return are times since the log began, taken before the
	// request was sent and after the answer came. Promises are judged by them.
	Call, Return time.Duration
	// Began and Ended number the same two moments over the whole log, so that their order is known even
	// where the clock stands still. Ended is 0 if there was no answer yet.
	Began, Ended int64

	// Lease is the answer; Err is the error instead of it.
	Lease baton.Lease
	Err   error
}

// unknown reports whether the request may yet take effect, or never.
func (o Op) unknown() bool {
	return o.Ended == 0 || o.Err != nil && !baton.IsAnswer(o.Err)
}

func (o Op) String() string {
	s := fmt.Sprintf("%v..%v %s: %s %s", o.Call, o.Return, o.Client, o.Kind, o.Group)
	if o.Instance != "" {
		s += " " + o.Instance
	}
	if o.Term != 0 {
		s += fmt.Sprintf(" term %d", o.Term)
	}
	switch {
	case o.Ended == 0:
		return s + " -> no answer"
	case o.Err != nil:
		return s + " -> " + o.Err.Error()
	case o.Kind == Release || o.Kind == End:
		return s + " -> ok"
	case !o.Lease.Held():
		return s + fmt.Sprintf(" -> vacant after term %d", o.Lease.Term)
	}
	return s + fmt.Sprintf(" -> term %d of %s, %v left", o.Lease.Term, o.Lease.InstanceID, o.Lease.Remaining)
}

// Log collects the requests of any number of clients. Its zero value is not ready; use NewLog.
type Log struct {
	clock baton.Clock
	start time.Duration

	mu    sync.Mutex
	order int64
	ops   []*Op
}

// NewLog makes an empty log that reads this clock; the system's if it is nil.
func NewLog(clock baton.Clock) *Log {
	if clock == nil {
		clock = baton.SystemClock()
	}
	return &Log{clock: clock, start: clock.Now()}
}

// Ops returns what was recorded so far, in the order of sending.
func (l *Log) Ops() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	ops := make([]Op, len(l.ops))
	for i, op := range l.ops {
		ops[i] = *op
	}
	return ops
}

// Record wraps a client's store so that its requests go to the log. The
// wrapper has the optional capabilities that the store has.
func (l *Log) Record(client string, s baton.Store) baton.Store {
	r := &recorder{Store: s, log: l, client: client}
	can := capability.Of(s)
	if can.Ender != nil {
		can.Ender = recordedEnder{r, can.Ender}
	}
	return capability.Join(r, can)
}

type recorder struct {
	baton.Store
	log    *Log
	client string
}

func (r *recorder) begin(op Op) *Op {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order++
	op.Client, op.Began, op.Call = r.client, l.order, l.clock.Now()-l.start
	l.ops = append(l.ops, &op)
	return &op
}

func (r *recorder) end(op *Op, lease baton.Lease, err error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order++
	op.Return, op.Ended, op.Lease, op.Err = l.clock.Now()-l.start, l.order, lease.Clone(), err
}

func (r *recorder) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	op := r.begin(Op{Kind: Acquire, Group: group, Instance: c.InstanceID, TTL: ttl})
	l, err := r.Store.Acquire(ctx, group, c, ttl)
	r.end(op, l, err)
	return l, err
}

func (r *recorder) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	op := r.begin(Op{Kind: Renew, Group: id.Group, Instance: id.InstanceID, Term: id.Term, TTL: extend})
	l, err := r.Store.Renew(ctx, id, extend)
	r.end(op, l, err)
	return l, err
}

func (r *recorder) Release(ctx context.Context, id baton.LeaseID) error {
	op := r.begin(Op{Kind: Release, Group: id.Group, Instance: id.InstanceID, Term: id.Term})
	err := r.Store.Release(ctx, id)
	r.end(op, baton.Lease{}, err)
	return err
}

func (r *recorder) Get(ctx context.Context, group string) (baton.Lease, error) {
	op := r.begin(Op{Kind: Get, Group: group})
	l, err := r.Store.Get(ctx, group)
	r.end(op, l, err)
	return l, err
}

type recordedEnder struct {
	r     *recorder
	inner baton.Ender
}

func (e recordedEnder) End(ctx context.Context, group string, term baton.Term, ending baton.Ending) error {
	op := e.r.begin(Op{Kind: End, Group: group, Term: term, Immediate: ending.Immediate})
	err := e.inner.End(ctx, group, term, ending)
	e.r.end(op, baton.Lease{}, err)
	return err
}
