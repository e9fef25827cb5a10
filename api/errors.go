package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"baton"
)

// Error is the body of every answer that is not a success: what kind, a
// sentence for people, and the facts for programs.
type Error struct {
	// OK is false where the answer of a success has an ok of its own, absent elsewhere.
	OK      *bool  `json:"ok,omitempty"`
	Code    string `json:"error"`
	Message string `json:"message"`

	// CurrentLeader comes with NOT_LEADER: who leads, or null.
	CurrentLeader json.RawMessage `json:"current_leader,omitempty"`
	// Term comes with NOT_LEADER: the group's latest term, if that was told.
	Term uint64 `json:"term,omitempty"`
	// MinTTL and MaxTTL come with INVALID_TTL, TTL is what was asked for.
	MinTTL *int64 `json:"min_ttl_ms,omitempty"`
	MaxTTL *int64 `json:"max_ttl_ms,omitempty"`
	TTL    *int64 `json:"ttl_ms,omitempty"`
	// Field comes with INVALID_TTL and INVALID_ARGUMENT, Value and Want with the latter.
	Field string `json:"field,omitempty"`
	Value string `json:"value,omitempty"`
	Want  string `json:"want,omitempty"`
	// Reason comes with CONFLICT: what stands in the way.
	Reason string `json:"reason,omitempty"`
	// RetryAfter comes with BACKEND_UNAVAILABLE and RATE_LIMITED.
	RetryAfter *int64 `json:"retry_after_ms,omitempty"`
}

// DefaultRetryAfter is what an overloaded or unreachable backend asks for when it has no opinion.
const DefaultRetryAfter = time.Second

// wireFields are the wire's names for what package baton calls otherwise.
var wireFields = map[string]string{
	"group":              "group_id",
	"ttl":                "lease_ttl_ms",
	"extend":             "extend_by_ms",
	"note":               "reason",
	"policy.min_ttl":     "policy.min_ttl_ms",
	"policy.max_ttl":     "policy.max_ttl_ms",
	"policy.retry_after": "policy.retry_after_ms",
}

func wireField(name string) string {
	if w, ok := wireFields[name]; ok {
		return w
	}
	return name
}

// ErrorOf shows err, at the wall time now, with the status to send it with. An
// error of no known kind is BACKEND_UNAVAILABLE: its outcome is unknown.
func ErrorOf(err error, now time.Time) (status int, body Error) {
	kind, known := baton.KindOf(err)
	body = Error{Code: kind.Code, Message: err.Error()}
	var (
		notLeader   *baton.NotLeaderError
		invalidTTL  *baton.InvalidTTLError
		invalidArg  *baton.InvalidArgumentError
		conflict    *baton.ConflictError
		duplicate   *baton.DuplicateNodeError
		unavailable *baton.UnavailableError
		limited     *RateLimitedError
	)
	switch {
	case kind.Err == baton.ErrUnavailable: // whatever it wraps
		wait := DefaultRetryAfter
		if known && errors.As(err, &unavailable) && unavailable.RetryAfter > 0 {
			wait = unavailable.RetryAfter
		}
		body.RetryAfter = ptr(MillisUp(wait))
	case kind.Err == baton.ErrNotLeader:
		body.OK = new(bool)
		body.CurrentLeader = json.RawMessage("null")
		if errors.As(err, &notLeader) && notLeader.Current != nil {
			body.Term = uint64(notLeader.Current.Term)
			if l := LeaderOf(*notLeader.Current, now); l != nil {
				body.CurrentLeader, _ = json.Marshal(l) // a Leader has nothing that cannot be marshalled
			}
		}
	case errors.As(err, &invalidTTL):
		body.Field = wireField(invalidTTL.Field)
		body.TTL, body.MinTTL, body.MaxTTL = ptr(Millis(invalidTTL.TTL)), ptr(MillisUp(invalidTTL.Min)), ptr(Millis(invalidTTL.Max))
		named := *invalidTTL
		named.Field = body.Field
		body.Message = named.Error()
	case errors.As(err, &invalidArg):
		body.Field, body.Value, body.Want = wireField(invalidArg.Field), clip(fmt.Sprint(invalidArg.Value)), invalidArg.Want
		named := *invalidArg
		named.Field = body.Field
		body.Message = named.Error()
	case errors.As(err, &conflict):
		body.Reason = conflict.Reason
	case errors.As(err, &duplicate):
		body.Reason = baton.ConflictDuplicateNode
	case kind.Err == baton.ErrRateLimited:
		wait := DefaultRetryAfter
		if errors.As(err, &limited) && limited.RetryAfter > 0 {
			wait = limited.RetryAfter
		}
		body.RetryAfter = ptr(MillisUp(wait))
	}
	return kind.HTTP, body
}

// Err is the error that the server had, with the type that carries its facts.
// op is what was being asked for and id names what it was about, as far as the
// caller knows. A code that is not known here leaves the outcome unknown, so it is ErrUnavailable.
func (b Error) Err(op string, id baton.LeaseID) error {
	kind, ok := baton.KindByCode(b.Code)
	if !ok {
		return &baton.UnavailableError{Op: op, Err: fmt.Errorf("server answered %q: %s", b.Code, b.Message)}
	}
	switch kind.Err {
	case baton.ErrNotLeader:
		out := &baton.NotLeaderError{ID: id}
		var leader *Leader
		if json.Unmarshal(b.CurrentLeader, &leader) == nil && leader != nil {
			out.Current = ptr(leader.Lease(id.Group))
		} else if b.Term != 0 {
			out.Current = &baton.Lease{Group: id.Group, Term: baton.Term(b.Term)}
		}
		return out
	case baton.ErrInvalidTTL:
		return &baton.InvalidTTLError{Field: b.Field, TTL: durationAt(b.TTL), Min: durationAt(b.MinTTL), Max: durationAt(b.MaxTTL)}
	case baton.ErrInvalidArgument:
		return &baton.InvalidArgumentError{Field: b.Field, Value: b.Value, Want: b.Want}
	case baton.ErrConflict:
		return &baton.ConflictError{Reason: b.Reason, Message: b.Message}
	case baton.ErrUnavailable:
		return &baton.UnavailableError{Op: op, RetryAfter: durationAt(b.RetryAfter), Err: errors.New(b.Message)}
	case baton.ErrRateLimited:
		return &RateLimitedError{RetryAfter: durationAt(b.RetryAfter), Message: b.Message}
	}
	return &kindError{kind: kind.Err, message: b.Message}
}

// RateLimitedError says how long to wait.
type RateLimitedError struct {
	RetryAfter time.Duration
	Message    string
}

func (e *RateLimitedError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("too many requests: wait %v", e.RetryAfter)
}

// Is reports the kind.
func (e *RateLimitedError) Is(target error) bool { return target == baton.ErrRateLimited }

// kindError is an error of a kind that has no facts.
type kindError struct {
	kind    error
	message string
}

func (e *kindError) Error() string {
	if e.message != "" {
		return e.message
	}
	return e.kind.Error()
}

func (e *kindError) Unwrap() error { return e.kind }

func ptr[T any](v T) *T { return &v }

func durationAt(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return Duration(*ms)
}

// clip keeps an error from echoing a whole request.
func clip(s string) string {
	const most = 256
	if len(s) > most {
		return s[:most]
	}
	return s
}
