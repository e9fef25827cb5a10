package kubestore

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"baton"
	"baton/internal/observed"
)

// requests bounds single requests, so that a call that meets a dead connection
// still has time for another.
type requests struct{ perRequest time.Duration }

// tooManyPause is what the API server says to those whom it cannot serve for the load that it has.
const tooManyPause = time.Second

// ask sends one request. Its error is a refusal, observed.ErrChanged, "not
// found", or leaves the outcome unknown.
func ask[T any](ctx context.Context, r requests, send func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(quiet(ctx), r.perRequest)
	defer cancel()
	answer, err := send(bounded)
	if err == nil {
		return answer, nil
	}
	if apierrors.IsTooManyRequests(err) {
		pause(ctx, tooManyPause) // who asked may ask again at once
	}
	var none T
	return none, kindOf(err)
}

// quiet keeps client-go from writing to standard error what its caller is told.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// kindOf tells refusals from failures.
func kindOf(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("kubernetes: %w: %w", baton.ErrUnauthenticated, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("kubernetes: %w: %w", baton.ErrNotAllowed, err)
	case apierrors.IsUnexpectedServerError(err): // of whatever stands between us and the API server
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("kubernetes: %w: %w", observed.ErrChanged, err)
	}
	return fmt.Errorf("kubernetes: %w", err)
}

// missing reports whether there is no such object, by the word of the API server
// itself. An update of one finds it changed.
func missing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// changed makes a missing object one that has changed.
func changed(err error) error {
	if missing(err) {
		return fmt.Errorf("%w: %w", observed.ErrChanged, err)
	}
	return err
}

// writeOnce keeps client-go from sending a write again when the server has
// asked to come later. The server asks that too after etcd has failed to
// answer in time; the second attempt would then find the object changed by the
// first, and take its own success for somebody else's.
type writeOnce struct{ next http.RoundTripper }

func (w writeOnce) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	if response != nil && request.Method != http.MethodGet {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the connections to close.
func (w writeOnce) WrappedRoundTripper() http.RoundTripper { return w.next }
