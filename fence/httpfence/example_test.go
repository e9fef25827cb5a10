package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"baton"
	"baton/fence"
	"baton/fence/httpfence"
)

func Example() {
	// The resource: its handlers stand behind a guard.
	guard := httpfence.New(httpfence.Config{})
	mux := http.NewServeMux()
	accept := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		claim, _ := httpfence.ClaimFrom(r.Context())
		fmt.Println("written under", claim)
	})
	mux.Handle("/reports/{name}", guard.Protect(func(r *http.Request) string { return r.PathValue("name") }, accept))
	server := httptest.NewServer(mux)
	defer server.Close()

	// Two leaders, one of them of the past.
	url := func(resource string) string { return server.URL + "/reports/" + resource }
	ledger := httpfence.NewLedger(server.Client(), url)
	write := func(ctx context.Context, t baton.Token) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, url("daily"), nil)
		if err != nil {
			return err
		}
		resp, err := ledger.Do(req, fence.Unordered(t))
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	ctx := context.Background()
	for _, t := range []baton.Token{{Group: "reports", Term: 1, InstanceID: "a"}, {Group: "reports", Term: 2, InstanceID: "b"}} {
		if _, err := ledger.Adopt(ctx, "daily", t); err != nil {
			fmt.Println(err)
		}
		if err := write(ctx, t); err != nil {
			fmt.Println(err)
		}
	}
	var stale *fence.StaleError
	if err := write(ctx, baton.Token{Group: "reports", Term: 1, InstanceID: "a"}); errors.As(err, &stale) {
		fmt.Println(stale)
	}
	// Output:
	// written under reports/1/a
	// written under reports/2/b
	// resource "daily" refuses reports/1/a as stale: it belongs to reports/2/b, last number 0
}
