package api_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/api"
)

func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct{ body, field string }{
		{``, "body"},
		{`null`, "body"},
		{`[]`, "body"},
		{`"x"`, "body"},
		{`{`, "body"},
		{`{"node_id":"a"`, "body"},
		{`{"node_id":"a"} {}`, "body"},
		{`{"node_id":"a"}x`, "body"},
		{`{"node_id":7}`, "node_id"},
		{`{"metadata":{"a":1}}`, "metadata"},
		{`{"lease_ttl_ms":"5000"}`, "lease_ttl_ms"},
		{`{"lease_ttl_ms":5.5}`, "lease_ttl_ms"},
		{`{"lease_ttl_ms":9223372036854775808}`, "lease_ttl_ms"},
		{`{"lease_ttl_ms":1e400}`, "lease_ttl_ms"},
		{`{"wait_ms":true}`, "wait_ms"},
	} {
		var r api.CampaignRequest
		err := api.Decode(strings.NewReader(tc.body), &r, api.IgnoreUnknown)
		var arg *baton.InvalidArgumentError
		if !errors.As(err, &arg) || !strings.HasPrefix(arg.Field, tc.field) {
			t.Errorf("%s: %v, want a complaint about %s", tc.body, err, tc.field)
		}
	}
	var r api.RenewRequest
	for _, body := range []string{`{"term":-1}`, `{"term":18446744073709551616}`, `{"term":1.5}`} {
		if err := api.Decode(strings.NewReader(body), &r, api.IgnoreUnknown); err == nil || !strings.HasPrefix(err.Error(), "term is") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestDecodeSizeAndUnknownFields(t *testing.T) {
	big := `{"node_id":"` + strings.Repeat("a", api.MaxBody) + `"}`
	var r api.CampaignRequest
	if err := api.Decode(strings.NewReader(big), &r, api.IgnoreUnknown); !errors.Is(err, baton.ErrTooLarge) {
		t.Errorf("big body: %v", err)
	}
	if err := api.Decode(strings.NewReader(`{"node_id":"a","colour":"red"} `+"\n"), &r, api.IgnoreUnknown); err != nil {
		t.Errorf("unknown field: %v", err)
	}
	var g api.Group
	err := api.Decode(strings.NewReader(`{"group_id":"a","policy":{"max_tll_ms":1}}`), &g, api.RefuseUnknown)
	if !errors.Is(err, baton.ErrInvalidArgument) || !strings.Contains(err.Error(), "max_tll_ms") {
		t.Errorf("misspelt limit: %v", err)
	}
}

func TestMillis(t *testing.T) {
	if d := api.Duration(math.MaxInt64); d != math.MaxInt64 {
		t.Errorf("overflow: %v", d)
	}
	if d := api.Duration(math.MinInt64); d != math.MinInt64 {
		t.Errorf("underflow: %v", d)
	}
	d := 1500*time.Microsecond + 1
	if api.Millis(d) != 1 || api.MillisUp(d) != 2 || api.MillisUp(2*time.Millisecond) != 2 {
		t.Error("rounding")
	}
}
