package httpapi_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"baton/api"
	"baton/server"
	"baton/server/httpapi"
)

// BenchmarkHandover measures how long a group has no leader when one resigns
// and another waits in line: from before the resignation is sent until the
// successor has read that it leads. Beside it stands what one HTTP request
// over the loopback costs here; a handover is three of them in a row.
func BenchmarkHandover(b *testing.B) {
	url, client := benchServer(b)
	roundTrip := make([]time.Duration, 0, 2000)
	for range cap(roundTrip) {
		began := time.Now()
		get(b, client, url+"/healthz")
		roundTrip = append(roundTrip, time.Since(began))
	}

	type turn struct {
		at   time.Time
		term uint64
	}
	candidates := [2]string{"a", "b"}
	won := make(chan turn)
	wait := func(node, instance string) {
		for {
			r := post[api.CampaignResponse](b, client, url+"/v1/groups/g/campaign",
				fmt.Sprintf(`{"node_id":%q,"instance_id":%q,"lease_ttl_ms":60000,"wait_ms":60000}`, node, instance))
			if r.IsLeader {
				won <- turn{time.Now(), r.Leader.Term}
				return
			}
		}
	}
	go wait(candidates[0], "0")
	leader := <-won
	gaps := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for i := range b.N {
		next := i + 1
		go wait(candidates[next%2], fmt.Sprint(next))
		for inLine := false; !inLine; { // a resignation before anybody waits measures something else
			inLine = strings.Contains(get(b, client, url+"/metrics"), "baton_waiting_campaigns 1\n")
		}
		began := time.Now()
		post[api.OKResponse](b, client, url+"/v1/groups/g/resign",
			fmt.Sprintf(`{"node_id":%q,"instance_id":"%d","term":%d}`, candidates[i%2], i, leader.term))
		leader = <-won
		gaps = append(gaps, leader.at.Sub(began))
	}
	b.StopTimer()
	report(b, "gap", gaps)
	report(b, "loopback", roundTrip)
}

// BenchmarkRenew is one client's renewals, one after the other.
func BenchmarkRenew(b *testing.B) {
	url, client := benchServer(b)
	won := post[api.CampaignResponse](b, client, url+"/v1/groups/g/campaign", `{"node_id":"n","instance_id":"i","lease_ttl_ms":60000}`)
	body := fmt.Sprintf(`{"node_id":"n","instance_id":"i","term":%d,"extend_by_ms":60000}`, won.Leader.Term)
	for b.Loop() {
		post[api.RenewResponse](b, client, url+"/v1/groups/g/renew", body)
	}
}

func benchServer(b *testing.B) (string, *http.Client) {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	svc, err := server.New(memory(b), server.Config{Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = httpapi.NewServer(httpapi.New(svc, httpapi.Config{Logger: log}), log)
	ts.Start()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	b.Cleanup(func() {
		client.CloseIdleConnections()
		ts.Close()
		svc.Close()
	})
	return ts.URL, client
}

func get(b *testing.B, client *http.Client, url string) string {
	resp, err := client.Get(url)
	if err != nil {
		b.Error(err)
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Error(err)
	}
	return string(raw)
}

func post[T any](b *testing.B, client *http.Client, url, body string) (out T) {
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return out
	}
	defer func() { _ = resp.Body.Close() }()
	if err := api.Decode(resp.Body, &out, api.IgnoreUnknown); err != nil || resp.StatusCode != 200 {
		b.Errorf("%s: %s, %v", url, resp.Status, err)
	}
	return out
}

func report(b *testing.B, name string, d []time.Duration) {
	slices.Sort(d)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(d[(len(d)-1)*p/100].Microseconds()), fmt.Sprintf("%s-p%d-µs", name, p))
	}
}
