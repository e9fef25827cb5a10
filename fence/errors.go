package fence

import (
	"errors"
	"fmt"

	"baton"
)

// The kinds of refusal. Match them with errors.Is; the types below carry the
// facts and are found with errors.As.
var (
	// ErrStale: a later leadership has the resource.
	ErrStale = errors.New("stale leadership")
	// ErrRepeat: the number was used, or passed over.
	ErrRepeat = errors.New("number is not above the last one")
	// ErrNotAdopted: this leadership has not adopted the resource.
	ErrNotAdopted = errors.New("resource not adopted")
	// ErrWrongGroup: the resource belongs to another group.
	ErrWrongGroup = errors.New("resource of another group")
	// ErrUnknown: the write may have landed, or not.
	ErrUnknown = errors.New("outcome unknown")
)

// StaleError refuses a leadership of the past, or one whose term another
// instance holds, as a broken store may grant it. It ends the leadership.
type StaleError struct {
	Resource string
	// Offered is what was refused.
	Offered Claim
	// Held is what the ledger holds.
	Held Record
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("resource %q refuses %v as stale: it belongs to %v", e.Resource, e.Offered, e.Held)
}

// Is matches ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// RepeatError refuses a number that is not above the last one. It says nothing
// against the leadership: a request that was sent twice is answered so.
type RepeatError struct {
	Resource string
	Offered  Claim
	Held     Record
}

func (e *RepeatError) Error() string {
	return fmt.Sprintf("resource %q refuses %v as a repeat: its last number is %d", e.Resource, e.Offered, e.Held.LastSeq)
}

// Is matches ErrRepeat.
func (e *RepeatError) Is(target error) bool { return target == ErrRepeat }

// NotAdoptedError refuses a write of a leadership that has not adopted the
// resource: what it read before could still be overtaken.
type NotAdoptedError struct {
	Resource string
	Offered  Claim
	Held     Record
}

func (e *NotAdoptedError) Error() string {
	return fmt.Sprintf("resource %q refuses %v, which has not adopted it: it belongs to %v", e.Resource, e.Offered, e.Held)
}

// Is matches ErrNotAdopted.
func (e *NotAdoptedError) Is(target error) bool { return target == ErrNotAdopted }

// WrongGroupError refuses the token of a group that the resource is not bound to.
type WrongGroupError struct {
	Resource string
	Offered  Claim
	Held     Record
}

func (e *WrongGroupError) Error() string {
	return fmt.Sprintf("resource %q refuses %v: it belongs to group %q", e.Resource, e.Offered, e.Held.Group)
}

// Is matches ErrWrongGroup.
func (e *WrongGroupError) Is(target error) bool { return target == ErrWrongGroup }

// AbortedError marks a failure after which the write certainly did not land
// and never will, such as an effect that failed and was rolled back.
type AbortedError struct{ Err error }

func (e *AbortedError) Error() string { return "write aborted: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *AbortedError) Unwrap() error { return e.Err }

// UnknownError is what a [Sequence] reports when it could not find out what
// became of a write.
type UnknownError struct {
	Resource string
	// Offered is the claim under which the content was last sent.
	Offered Claim
	// Settled says that the write will not land any more if it has not yet;
	// only the reading of whether it did has failed.
	Settled bool
	Err     error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("write %v to resource %q: outcome unknown: %v", e.Offered, e.Resource, e.Err)
}

// Is matches ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// Refused reports whether err is a ledger's refusal: the write did not land,
// never will, and would be refused again.
func Refused(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false // whatever came of it later, the write itself got no answer
	}
	for _, kind := range []error{ErrStale, ErrRepeat, ErrNotAdopted, ErrWrongGroup, baton.ErrInvalidArgument} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
