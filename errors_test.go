package baton_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"baton"
)

func TestErrorTable(t *testing.T) {
	codes := map[string]bool{}
	for _, k := range baton.ErrorKinds() {
		if codes[k.Code] {
			t.Errorf("code %s stands twice", k.Code)
		}
		codes[k.Code] = true
		if by, ok := baton.KindByCode(k.Code); !ok || by.Err != k.Err {
			t.Errorf("code %s leads to %v", k.Code, by.Err)
		}
		if of, ok := baton.KindOf(fmt.Errorf("doing something: %w", k.Err)); !ok || of.Err != k.Err {
			t.Errorf("%v is taken for %v", k.Err, of.Err)
		}
		if http.StatusText(k.HTTP) == "" || k.GRPC > 16 {
			t.Errorf("%s has status %d and %d", k.Code, k.HTTP, k.GRPC)
		}
	}
}

func TestErrorTypesHaveTheirKind(t *testing.T) {
	for _, tc := range []struct {
		err  error
		kind error
	}{
		{&baton.HeldError{}, baton.ErrHeld},
		{&baton.NotLeaderError{}, baton.ErrNotLeader},
		{&baton.InvalidTTLError{}, baton.ErrInvalidTTL},
		{&baton.InvalidArgumentError{}, baton.ErrInvalidArgument},
		{&baton.ConflictError{}, baton.ErrConflict},
		{&baton.DuplicateNodeError{}, baton.ErrConflict},
		{&baton.UnavailableError{Op: "get", Err: context.DeadlineExceeded}, baton.ErrUnavailable},
	} {
		for _, k := range baton.ErrorKinds() {
			if is := errors.Is(tc.err, k.Err); is != (k.Err == tc.kind) {
				t.Errorf("%T is %v: %v", tc.err, k.Err, is)
			}
		}
		if tc.err.Error() == "" {
			t.Errorf("%T says nothing", tc.err)
		}
	}
}

// Rule 8: only what the store said from committed state is an answer.
func TestWhatIsNoAnswer(t *testing.T) {
	for _, err := range []error{
		context.Canceled, context.DeadlineExceeded, errors.New("connection reset"),
		&baton.UnavailableError{Op: "renew"}, fmt.Errorf("renew: %w", baton.ErrUnavailable),
		&baton.UnavailableError{Op: "renew", Err: &baton.NotLeaderError{}}, // what it ran into is no answer either
	} {
		if baton.IsAnswer(err) {
			t.Errorf("%v counts as an answer", err)
		}
	}
	if _, ok := baton.KindOf(context.Canceled); ok {
		t.Error("a context's error has a kind")
	}
	if baton.IsAnswer(nil) {
		t.Error("no error counts as an answer")
	}
}
