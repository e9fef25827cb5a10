package baton

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of errors. Match them with errors.Is; the types below carry the
// facts and are found with errors.As.
var (
	// ErrHeld: the group is held by another instance.
	ErrHeld = errors.New("held by another")
	// ErrNotLeader: this leadership is over, or never was.
	ErrNotLeader = errors.New("not the leader")
	// ErrInvalidTTL: a TTL outside the bounds.
	ErrInvalidTTL = errors.New("invalid ttl")
	// ErrInvalidArgument: a request that makes no sense.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrNotAllowed: known, but not allowed to do this.
	ErrNotAllowed = errors.New("not allowed")
	// ErrUnauthenticated: not known.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrConflict: refused because of the state that things are in.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable: the store cannot decide now. The outcome of the request is unknown.
	ErrUnavailable = errors.New("store unavailable")
	// ErrNotFound: no such group.
	ErrNotFound = errors.New("not found")
	// ErrTooLarge: a request above the size limit.
	ErrTooLarge = errors.New("too large")
	// ErrRateLimited: too many requests; try again later.
	ErrRateLimited = errors.New("rate limited")
)

// ErrorKind is one row of the table that ties a kind of error to its names on the wire.
type ErrorKind struct {
	// Err is the sentinel.
	Err error
	// Code is the name in JSON.
	Code string
	// HTTP is the status. ErrHeld has 200: losing a campaign is not a failure.
	HTTP int
	// GRPC is the number of the status code.
	GRPC uint32
}

// Numbers instead of names: a library that elects over a store need not link an HTTP server.
var errorKinds = []ErrorKind{
	{ErrHeld, "HELD", 200, 0},
	{ErrNotLeader, "NOT_LEADER", 409, 9},
	{ErrInvalidTTL, "INVALID_TTL", 400, 3},
	{ErrInvalidArgument, "INVALID_ARGUMENT", 400, 3},
	{ErrNotAllowed, "UNAUTHORIZED", 403, 7},
	{ErrUnauthenticated, "UNAUTHENTICATED", 401, 16},
	{ErrConflict, "CONFLICT", 409, 10},
	{ErrUnavailable, "BACKEND_UNAVAILABLE", 503, 14},
	{ErrNotFound, "NOT_FOUND", 404, 5},
	{ErrTooLarge, "TOO_LARGE", 413, 8},
	{ErrRateLimited, "RATE_LIMITED", 429, 8},
}

// ErrorKinds returns the whole table.
func ErrorKinds() []ErrorKind { return append([]ErrorKind(nil), errorKinds...) }

// KindOf finds the row for err. An error of no kind, such as a context's, has an unknown
// outcome and is reported as ErrUnavailable's row with ok false.
func KindOf(err error) (kind ErrorKind, ok bool) {
	var found, unavailable ErrorKind
	for _, k := range errorKinds {
		if k.Err == ErrUnavailable {
			unavailable = k
		} else if !ok && errors.Is(err, k.Err) {
			found, ok = k, true
		}
	}
	switch {
	case errors.Is(err, ErrUnavailable):
		return unavailable, true // whatever it wraps: what kept a store from deciding is no answer
	case ok:
		return found, true
	}
	return unavailable, false
}

// KindByCode finds the row for a code on the wire.
func KindByCode(code string) (ErrorKind, bool) {
	for _, k := range errorKinds {
		if k.Code == code {
			return k, true
		}
	}
	return ErrorKind{}, false
}

// IsAnswer reports whether err is a store's answer, given from committed
// state, with nothing changed. Any other error leaves the outcome unknown.
func IsAnswer(err error) bool {
	k, ok := KindOf(err)
	return ok && k.Err != ErrUnavailable
}

// HeldError is the answer to a candidate that lost.
type HeldError struct {
	Lease Lease
	// RetryAfter is how long the store suggests to wait; 0 if it has no opinion.
	RetryAfter time.Duration
}

func (e *HeldError) Error() string {
	if !e.Lease.Held() {
		return fmt.Sprintf("group %q is vacant after term %d, and it is another candidate's turn for another %v",
			e.Lease.Group, e.Lease.Term, e.RetryAfter)
	}
	return fmt.Sprintf("group %q is held by node %q, term %d, for another %v",
		e.Lease.Group, e.Lease.NodeID, e.Lease.Term, e.Lease.Remaining)
}

func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// NotLeaderError is the answer to a holder whose leadership is over.
type NotLeaderError struct {
	// ID is the leadership that was named. Node and instance are empty where only the term was.
	ID LeaseID
	// Current is the state of the group, nil if it is not told.
	Current *Lease
}

func (e *NotLeaderError) Error() string {
	s := fmt.Sprintf("node %q does not lead group %q in term %d", e.ID.NodeID, e.ID.Group, e.ID.Term)
	switch {
	case e.Current == nil:
		return s
	case e.Current.Held():
		return fmt.Sprintf("%s: node %q leads in term %d", s, e.Current.NodeID, e.Current.Term)
	default:
		return fmt.Sprintf("%s: nobody leads, the last term was %d", s, e.Current.Term)
	}
}

func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// InvalidTTLError names the bounds that a TTL missed.
type InvalidTTLError struct {
	// Field is what was given: "ttl", "extend", "lease_ttl_ms".
	Field    string
	TTL      time.Duration
	Min, Max time.Duration
}

func (e *InvalidTTLError) Error() string {
	return fmt.Sprintf("%s is %v: want %v to %v", e.Field, e.TTL, e.Min, e.Max)
}

func (e *InvalidTTLError) Is(target error) bool { return target == ErrInvalidTTL }

// InvalidArgumentError names the field that makes no sense.
type InvalidArgumentError struct {
	Field string
	Value any
	// Want says what would be right: "1 to 128 of A-Z a-z 0-9 . _ : -".
	Want string
}

func (e *InvalidArgumentError) Error() string {
	if s, ok := e.Value.(string); ok {
		const most = 64
		if len(s) > most {
			return fmt.Sprintf("%s is %q... (%d bytes): want %s", e.Field, s[:most], len(s), e.Want)
		}
		return fmt.Sprintf("%s is %q: want %s", e.Field, s, e.Want)
	}
	return fmt.Sprintf("%s is %v: want %s", e.Field, e.Value, e.Want)
}

func (e *InvalidArgumentError) Is(target error) bool { return target == ErrInvalidArgument }

// The reasons of a ConflictError.
const (
	// ConflictInstanceEnded: this instance's leadership has ended; campaign with a new one.
	ConflictInstanceEnded = "instance_ended"
	// ConflictNotInLine: the successor is not waiting.
	ConflictNotInLine = "not_in_line"
	// ConflictHeld: the group has a leader.
	ConflictHeld = "held"
	// ConflictVersion: the registration was changed by someone else.
	ConflictVersion = "version"
	// ConflictDuplicateNode: another live process uses this node id.
	ConflictDuplicateNode = "duplicate_node"
	// ConflictUnsupported: this store cannot do that; its Guarantees say so.
	ConflictUnsupported = "unsupported"
	// ConflictTermsExhausted: the group has used up all terms below MaxTerm.
	ConflictTermsExhausted = "terms_exhausted"
	// ConflictBusy: this elector campaigns or leads already.
	ConflictBusy = "busy"
)

// ConflictError says what stands in the way.
type ConflictError struct {
	Reason  string
	Message string
}

func (e *ConflictError) Error() string {
	if e.Message == "" {
		return "conflict: " + e.Reason
	}
	return e.Message
}

func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// DuplicateNodeError: another live instance leads under this node's id, so two
// processes share an identity that only one may have.
type DuplicateNodeError struct {
	// Held is the other one's lease; it was seen to be renewed.
	Held Lease
	// InstanceID is ours.
	InstanceID string
}

func (e *DuplicateNodeError) Error() string {
	return fmt.Sprintf("node id %q is used twice in group %q: instance %s leads in term %d and renews, while instance %s campaigns; give every process a node id of its own",
		e.Held.NodeID, e.Held.Group, e.Held.InstanceID, e.Held.Term, e.InstanceID)
}

func (e *DuplicateNodeError) Is(target error) bool { return target == ErrConflict }

// UnavailableError wraps what kept a store from deciding.
type UnavailableError struct {
	// Op is what was being done: "renew", "acquire".
	Op string
	// RetryAfter is how long the store suggests to wait; 0 if it has no opinion.
	RetryAfter time.Duration
	Err        error
}

func (e *UnavailableError) Error() string {
	if e.Err == nil {
		return e.Op + ": store unavailable"
	}
	return fmt.Sprintf("%s: store unavailable: %v", e.Op, e.Err)
}

func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }
func (e *UnavailableError) Unwrap() error        { return e.Err }
