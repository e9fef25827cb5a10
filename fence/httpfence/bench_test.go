package httpfence_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"baton/fence"
	"baton/fence/httpfence"
)

// BenchmarkPost measures the cost of safety: fenced and unfenced requests take
// turns in one run. The metric fenced/unfenced is the ratio of their throughputs.
func BenchmarkPost(b *testing.B) {
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

	post := func(path string, do func(*http.Request) (*http.Response, error)) func(context.Context) error {
		return func(ctx context.Context) error {
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
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			compare(b, writers, post("/unfenced", client.Do), post("/fenced", func(req *http.Request) (*http.Response, error) {
				return ledger.Do(req, fence.Unordered(a))
			}))
		})
	}
}

func compare(b *testing.B, writers int, unfenced, fenced func(ctx context.Context) error) {
	const turn = 64 // writes per writer before the other kind has its turn
	var spent [2]time.Duration
	rounds := 0
	for b.Loop() {
		for kind, write := range []func(context.Context) error{unfenced, fenced} {
			began := time.Now()
			var all sync.WaitGroup
			for range writers {
				all.Go(func() {
					for range turn {
						if err := write(b.Context()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			spent[kind] += time.Since(began)
		}
		rounds++
	}
	writes := float64(rounds * turn * writers)
	b.ReportMetric(0, "ns/op") // of a whole round: says nothing
	b.ReportMetric(writes/spent[0].Seconds(), "unfenced/s")
	b.ReportMetric(writes/spent[1].Seconds(), "fenced/s")
	b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "fenced/unfenced")
}
