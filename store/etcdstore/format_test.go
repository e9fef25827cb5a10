package etcdstore_test

import (
	"maps"
	"regexp"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
	"baton/storetest/drill"
)

// Stores of other versions share these keys, so what is in them stays as it is.
func TestWhatIsStored(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	c := baton.Candidate{NodeID: "node", InstanceID: "i-1", Metadata: map[string]string{"url": "http://a"}}
	l, err := s.Acquire(t.Context(), "g", c, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/etcdstore/leases/g/record": `{"holder":{"term":1,"node":"node","instance":"i-1","metadata":{"url":"http://a"},"ttl_s":60,"lease":"LEASE","elected_ms":0,"gap_ms":0},"ended":0}`,
		"/etcdstore/leases/g/bound":  `1`,
		"/etcdstore/terms/g":         `1`,
	}
	stamps, lease := regexp.MustCompile(`_ms":\d+`), regexp.MustCompile(`"lease":"[0-9a-f]{16}"`)
	look := func(when string) {
		t.Helper()
		resp, err := etcd.Get(t.Context(), "/etcdstore/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, kv := range resp.Kvs {
			value := stamps.ReplaceAllString(string(kv.Value), `_ms":0`)
			got[string(kv.Key)] = lease.ReplaceAllString(value, `"lease":"LEASE"`)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", when, got, want)
		}
	}
	look("granted")
	drill.Release(t, s, l)
	past := `{"term":1,"node":"node","instance":"i-1","elected_ms":0,"ended_ms":0,"gap_ms":0,"reason":"RESIGNED"}`
	want = map[string]string{
		"/etcdstore/leases/g/record": `{"last":` + past + `,"ended":1}`,
		"/etcdstore/past/g/00":       past,
		"/etcdstore/terms/g":         `1`,
	}
	look("released")
}
