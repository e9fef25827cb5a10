package httpfence_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/httpfence"
)

// BenchmarkCost compares requests to a handler that does nothing, fenced and not.
func BenchmarkCost(b *testing.B) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	guard := httpfence.New(httpfence.Config{})
	mux := http.NewServeMux()
	mux.Handle("/unfenced", handler)
	mux.Handle("/fenced", guard.Protect(httpfence.Fixed(resource), handler))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 16
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: base}
	ledger := httpfence.NewLedger(client, func(string) string { return srv.URL + "/fenced" })
	a := token(5, "a")
	mustAdopt(b, ledger, a)

	post := func(path string, do func(*http.Request) (*http.Response, error)) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+path, nil)
			if err != nil {
				return err
			}
			resp, err := do(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}
	}
	fencetest.Cost(b, post("/unfenced", client.Do), post("/fenced", func(req *http.Request) (*http.Response, error) {
		return ledger.Do(req, fence.Unordered(a))
	}))
}
