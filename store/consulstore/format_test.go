package consulstore_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/storetest/drill"
)

// Stores of other versions share these keys, so what is in them stays as it is.
func TestWhatIsStored(t *testing.T) {
	t.Parallel()
	o := shared(t)
	c := baton.Candidate{NodeID: "node", InstanceID: "i-1", Metadata: map[string]string{"url": "http://a"}}
	l, err := o.Acquire(t.Context(), "g", c, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"leases/g": `{"holder":{"term":1,"node":"node","instance":"i-1","metadata":{"url":"http://a"},"ttl_s":60,"elected_ms":0,"gap_ms":0},"ended":0}`,
		"terms/g":  `1`,
	}
	stamps := regexp.MustCompile(`_ms":\d+`)
	look := func(when string) {
		t.Helper()
		pairs, _, err := o.consul.KV().List(o.prefix+"/", &api.QueryOptions{RequireConsistent: true})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, pair := range pairs {
			got[strings.TrimPrefix(pair.Key, o.prefix+"/")] = stamps.ReplaceAllString(string(pair.Value), `_ms":0`)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", when, got, want)
		}
	}
	look("granted")
	drill.Release(t, o, l)
	past := `{"term":1,"node":"node","instance":"i-1","metadata":{"url":"http://a"},"elected_ms":0,"ended_ms":0,"gap_ms":0,"reason":"RESIGNED"}`
	want = map[string]string{
		"leases/g":  `{"last":` + past + `,"ended":1}`,
		"past/g/00": past,
		"terms/g":   `1`,
	}
	look("released")
}
