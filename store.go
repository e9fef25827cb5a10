package baton

import (
	"context"
	"iter"
	"time"
)

// Store keeps leases. It is linearizable, and it is the only judge of when a
// lease has ended.
//
// Every method honours its context and returns in bounded time. Errors are of
// the kinds in this package's error table. All but ErrUnavailable are answers:
// they are given from committed state, or before anything was looked at, and nothing was
// changed. ErrUnavailable, and an error of no kind, a context's among them, leave the outcome
// unknown: the request may take effect, now or later.
//
// A Store is safe for concurrent use. What it returns is the caller's to keep;
// what it was given it does not keep without copying.
type Store interface {
	// Acquire grants the group to c if it is vacant: a higher term, ttl
	// recorded. The same instance asking again, as one does whose
	// answer was lost, gets the lease it holds, renewed as by Renew unless it is ending.
	//
	// Held by anyone else, another instance of the same node included:
	// *HeldError with the current lease and how long to wait. The instance whose leadership of
	// this group ended last: *ConflictError with reason ConflictInstanceEnded.
	Acquire(ctx context.Context, group string, c Candidate, ttl time.Duration) (Lease, error)

	// Renew lets exactly this leadership last for extend from now, or until it
	// would have lasted anyway if that is later. A lease that is being ended comes
	// back unextended, with Ending set: drain and release.
	//
	// An extend above the lease's TTL raises it for good, where
	// Guarantees.Extends; elsewhere it is *InvalidTTLError. A leadership that
	// is over, because it ran out, ended or never was: *NotLeaderError with whoever leads now.
	Renew(ctx context.Context, id LeaseID, extend time.Duration) (Lease, error)

	// Release ends exactly this leadership, with the reason of its Ending if
	// it has one and Resigned if not. One that is over already: *NotLeaderError.
	Release(ctx context.Context, id LeaseID) error

	// Get reads the group, linearizably. A vacant group reports its last
	// term; a group that is not known, the term that its first one will exceed.
	Get(ctx context.Context, group string) (Lease, error)

	// Watch yields the current state first, then every change. Given a cursor
	// of this store, it yields all changes after it instead, as long as those are
	// retained; with one that is foreign or too old, the current state marked
	// as a gap, then every change. A slow reader may be given a gap too.
	//
	// An error is the last thing it yields; the end of ctx is one.
	Watch(ctx context.Context, group string, after Cursor) iter.Seq2[Event, error]

	// Guarantees says what this store can promise. It does not change while the store is open.
	Guarantees() Guarantees

	// Close ends watches and waits, and refuses what comes later with
	// ErrUnavailable. Leases stay as they are.
	Close() error
}

// Line is implemented by stores at which candidates wait their turn.
//
// It hands out turns, not grants: a turn is a hint that keeps candidates from
// running all at once, and no safety rests on it.
type Line interface {
	// Await takes a place in line, or keeps the one that c has, and returns
	// nil when c is first and the group is vacant or about to be. The turn is kept for c
	// for about a second: it should Acquire at once. If it does not, the next one is called.
	// Until then a store may answer an Acquire of anybody else with *HeldError: its Lease is the vacant
	// state, its RetryAfter what is left of the turn.
	//
	// When ctx ends first, Await returns its error. The place is kept for another 5
	// seconds, so that it survives from one poll to the next.
	Await(ctx context.Context, group string, c Candidate) error
}

// Ender is implemented by stores whose leaderships can be ended by others than
// their holder.
type Ender interface {
	// End ends the leadership of exactly this term, or begins to. A term that does not lead:
	// *NotLeaderError. A successor that is not in line, where the store has a line:
	// *ConflictError with reason ConflictNotInLine. Ending a leadership again replaces what was asked before.
	End(ctx context.Context, group string, term Term, e Ending) error
}

// Historian is implemented by stores that remember who led.
type Historian interface {
	// History returns the last terms of a group, oldest first; empty if there are none.
	History(ctx context.Context, group string) ([]PastTerm, error)
}

// Policy bounds what candidates of a group may ask for. A zero field says nothing.
type Policy struct {
	MinTTL     time.Duration
	MaxTTL     time.Duration
	RetryAfter time.Duration
}

// Group is what a registry knows about a group.
type Group struct {
	ID     string
	Policy Policy
	// AllowedNodes may campaign; empty allows all.
	AllowedNodes []string
	// Version tells one state of the registration from the next. It is 0 for a
	// group that exists by use alone.
	Version uint64
}

// Registry is implemented by stores that keep group policies, so that several
// servers on one store agree on them.
type Registry interface {
	// Group returns one group: registered, or existing by use. Neither: ErrNotFound.
	Group(ctx context.Context, id string) (Group, error)
	// PutGroup registers g if g.Version is the current version (0: not
	// registered yet) and returns it with its new one. Otherwise *ConflictError with reason ConflictVersion.
	PutGroup(ctx context.Context, g Group) (Group, error)
	// DeleteGroup forgets a vacant group, and nothing of its terms: the next
	// one is higher than all before. A group that is held: *ConflictError with
	// reason ConflictHeld. Not known: ErrNotFound.
	DeleteGroup(ctx context.Context, id string) error
	// Groups lists the groups that are registered or exist by use, ordered by id.
	Groups(ctx context.Context) ([]Group, error)
}

// TimeKept says which clock judges a store's leases.
type TimeKept string

const (
	// TimeMonotonic: the store's own clock, which no one sets.
	TimeMonotonic TimeKept = "monotonic"
	// TimeWall: the store's wall clock; a step of it breaks the lease.
	TimeWall TimeKept = "wall"
	// TimeObserved: every observer counts on its own clock from when it saw
	// the lease change.
	TimeObserved TimeKept = "observed"
)

// Waiting says how candidates wait at a store.
type Waiting string

const (
	// WaitLine: the store is a Line; one vacancy wakes one candidate.
	WaitLine Waiting = "line"
	// WaitWatch: candidates watch the group, then try with jitter.
	WaitWatch Waiting = "watch"
)

// Guarantees is what a store promises, in a form that programs can check
// before they rely on it.
type Guarantees struct {
	// Store names the kind of store: "memory", "raft", "etcd".
	Store string
	// MinTTL and MaxTTL bound what Acquire takes; a TTL is rounded up to a multiple of TTLStep.
	MinTTL  time.Duration
	MaxTTL  time.Duration
	TTLStep time.Duration
	// ExpiryLag is how long after a lease's end the group opens, at worst, while the store is healthy.
	ExpiryLag time.Duration
	// Time is the clock that judges.
	Time TimeKept
	// QuorumRenewals: a renewal is acknowledged only after a quorum confirmed
	// that whoever acknowledges is still in charge.
	QuorumRenewals bool
	// DurableTerms: terms keep rising through a restart of the store.
	DurableTerms bool
	// FailoverTerms: terms keep rising through a failover inside the store.
	FailoverTerms bool
	// DeletionTerms: terms keep rising when a group is deleted and used again.
	DeletionTerms bool
	// Extends: a renewal may ask for more than the TTL that was granted.
	Extends bool
	// Waiting is how candidates wait.
	Waiting Waiting
	// Transfers: leaderships can be ended by others and handed to a named successor.
	Transfers bool
	// Caveats are sentences an operator must have read before relying on this store.
	Caveats []string
}
