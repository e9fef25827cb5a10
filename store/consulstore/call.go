package consulstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"baton"
)

var (
	errTimeout = errors.New("consul did not answer in time")
	errTorn    = errors.New("the group's record is locked, and by nobody who leads")
	errHidden  = errors.New("the token may not read these keys")
	errLost    = errors.New("the answer was lost, and what came of the request can no longer be told")
)

// kindOf tells refusals from failures.
func kindOf(op string, err error) error {
	var refusal *refusalError
	switch {
	case errors.As(err, &refusal):
		return fmt.Errorf("%s: consul: %w: %w", op, refusal.kind, err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	return &baton.UnavailableError{Op: op, Err: err}
}

// refusalError is an answer of Consul that is no failure, and that asking again
// does not change.
type refusalError struct {
	kind error // of the root package
	text string
}

func (e *refusalError) Error() string { return e.text }

// refused reports whether asking again is pointless.
func refused(err error) bool {
	var refusal *refusalError
	return errors.As(err, &refusal)
}

// refusals makes errors of the answers by which Consul refuses: its client tells
// them apart from failures in some calls and not in others.
type refusals struct{ next http.RoundTripper }

func (r refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	refusal := &refusalError{kind: baton.ErrNotAllowed, text: strings.TrimSpace(string(text))}
	// A token that is not known, or expired, is answered 403 as well.
	if response.StatusCode == http.StatusUnauthorized || strings.Contains(refusal.text, "ACL not found") {
		refusal.kind = baton.ErrUnauthenticated
	}
	return nil, refusal
}
