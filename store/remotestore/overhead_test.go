package remotestore_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"baton"
	"baton/api"
	"baton/store/remotestore"
)

// instantly answers every request with the same body, without a network.
type instantly struct{ body string }

func (i instantly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader([]byte(i.body))), ContentLength: int64(len(i.body)),
	}, nil
}

// BenchmarkOverhead measures what this package adds to a request: all but the
// network, net/http's connections and the server.
func BenchmarkOverhead(b *testing.B) {
	const leader = `{"node_id":"n","instance_id":"i","term":1,"lease_ttl_ms":60000,"lease_remaining_ms":60000,"lease_expires_at_ms":1700000000000,"metadata":{}}`
	id := baton.LeaseID{Group: "g", NodeID: "n", InstanceID: "i", Term: 1}
	client := func(b *testing.B, body string) *remotestore.Client {
		c, err := remotestore.NewClient(remotestore.Config{Servers: []string{"a", "b", "c"}, Transport: instantly{body}, Logger: quiet()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		return c
	}
	b.Run("renew", func(b *testing.B) {
		c := client(b, `{"ok":true,"leader":`+leader+"}\n")
		for b.Loop() {
			if _, err := c.Renew(b.Context(), "g", api.RenewRequest{NodeID: id.NodeID, InstanceID: id.InstanceID, Term: uint64(id.Term), ExtendBy: api.MillisUp(time.Minute)}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("leader", func(b *testing.B) {
		c := client(b, `{"leader":`+leader+`,"term":1}`+"\n")
		for b.Loop() {
			if _, err := c.Leader(b.Context(), "g"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
