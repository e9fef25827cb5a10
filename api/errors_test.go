package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"baton"
	"baton/api"
)

var id = baton.LeaseID{Group: "g", NodeID: "n", InstanceID: "i", Term: 7}

// roundTrip sends err over the wire and returns what the other side makes of it.
func roundTrip(t *testing.T, err error) (int, string, error) {
	t.Helper()
	status, body := api.ErrorOf(err, time.UnixMilli(1_000_000))
	raw, merr := json.Marshal(body)
	if merr != nil {
		t.Fatal(merr)
	}
	var back api.Error
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	return status, string(raw), back.Err("renew", id)
}

// A store that could not decide says when to come back, whatever it had found so far.
func TestUnavailableHidesWhatItWraps(t *testing.T) {
	for _, inner := range []error{&baton.NotLeaderError{ID: id}, &baton.ConflictError{Reason: "held"}, &baton.InvalidTTLError{}, &baton.InvalidArgumentError{}, baton.ErrRateLimited} {
		status, body := api.ErrorOf(&baton.UnavailableError{Op: "renew", RetryAfter: 2 * time.Second, Err: inner}, time.Now())
		if status != 503 || body.Code != "BACKEND_UNAVAILABLE" || body.RetryAfter == nil || *body.RetryAfter != 2000 || body.Reason+body.Field != "" {
			t.Errorf("%v: %d %+v", inner, status, body)
		}
	}
}

func TestErrorsKeepTheirFacts(t *testing.T) {
	lease := baton.Lease{Group: "g", Term: 9, NodeID: "other", InstanceID: "j", TTL: 5 * time.Second, Remaining: 1500 * time.Millisecond}
	for _, tc := range []struct {
		err    error
		status int
		body   string
	}{
		{&baton.NotLeaderError{ID: id, Current: &lease}, 409,
			`{"ok":false,"error":"NOT_LEADER","message":"node \"n\" does not lead group \"g\" in term 7: node \"other\" leads in term 9","current_leader":{"node_id":"other","instance_id":"j","term":9,"lease_expires_at_ms":1001500,"lease_remaining_ms":1500,"lease_ttl_ms":5000},"term":9}`},
		{&baton.NotLeaderError{ID: id, Current: &baton.Lease{Group: "g", Term: 8}}, 409,
			`{"ok":false,"error":"NOT_LEADER","message":"node \"n\" does not lead group \"g\" in term 7: nobody leads, the last term was 8","current_leader":null,"term":8}`},
		{&baton.NotLeaderError{ID: id}, 409,
			`{"ok":false,"error":"NOT_LEADER","message":"node \"n\" does not lead group \"g\" in term 7","current_leader":null}`},
		{&baton.InvalidTTLError{Field: "lease_ttl_ms", TTL: time.Second, Min: 2 * time.Second, Max: 15 * time.Second}, 400,
			`{"error":"INVALID_TTL","message":"lease_ttl_ms is 1s: want 2s to 15s","min_ttl_ms":2000,"max_ttl_ms":15000,"ttl_ms":1000,"field":"lease_ttl_ms"}`},
		{&baton.InvalidArgumentError{Field: "node_id", Value: "a/b", Want: "an id"}, 400,
			`{"error":"INVALID_ARGUMENT","message":"node_id is \"a/b\": want an id","field":"node_id","value":"a/b","want":"an id"}`},
		{&baton.ConflictError{Reason: baton.ConflictNotInLine, Message: "node x does not wait"}, 409,
			`{"error":"CONFLICT","message":"node x does not wait","reason":"not_in_line"}`},
		{&api.RateLimitedError{RetryAfter: 300 * time.Millisecond, Message: "slow down"}, 429,
			`{"error":"RATE_LIMITED","message":"slow down","retry_after_ms":300}`},
	} {
		status, body, back := roundTrip(t, fmt.Errorf("renew: %w", tc.err))
		// The wrapping is the server's own affair; where facts are shown, the
		// message is built from them.
		_, plain := api.ErrorOf(tc.err, time.UnixMilli(1_000_000))
		raw, _ := json.Marshal(plain)
		if status != tc.status || string(raw) != tc.body {
			t.Errorf("%T: status %d, body\n got %s\nwant %s", tc.err, status, raw, tc.body)
		}
		if _, ok := tc.err.(*baton.ConflictError); ok {
			var c *baton.ConflictError
			if !errors.As(back, &c) || c.Reason != baton.ConflictNotInLine {
				t.Errorf("conflict came back as %#v", back)
			}
			continue
		}
		if _, ok := tc.err.(*api.RateLimitedError); !ok && !reflect.DeepEqual(back, tc.err) {
			t.Errorf("sent %#v\n back %#v\n body %s", tc.err, back, body)
		}
	}
}

func TestEveryKindKeepsItsKind(t *testing.T) {
	for _, k := range baton.ErrorKinds() {
		if k.Err == baton.ErrHeld {
			continue // an answer, not an error, on the wire
		}
		status, body, back := roundTrip(t, fmt.Errorf("doing it: %w", k.Err))
		if status != k.HTTP || !errors.Is(back, k.Err) {
			t.Errorf("%s: status %d, back as %v (%s)", k.Code, status, back, body)
		}
	}
}

func TestUnknownOutcomesStayUnknown(t *testing.T) {
	for _, err := range []error{
		context.DeadlineExceeded,
		context.Canceled,
		errors.New("something odd"),
		&baton.UnavailableError{Op: "renew", RetryAfter: 250 * time.Millisecond, Err: errors.New("no quorum")},
	} {
		status, body, back := roundTrip(t, err)
		var u *baton.UnavailableError
		if status != 503 || !errors.As(back, &u) || u.RetryAfter <= 0 || baton.IsAnswer(back) {
			t.Errorf("%v: status %d, body %s, back %#v", err, status, body, back)
		}
	}
	if err := (api.Error{Code: "FROM_THE_FUTURE"}).Err("renew", id); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("a code that is not known came back as %#v", err)
	}
}

func TestRootNamesBecomeWireNames(t *testing.T) {
	_, body := api.ErrorOf(baton.Guarantees{MinTTL: time.Second, MaxTTL: time.Minute}.ValidateTTL(1), time.Now())
	if body.Field != "lease_ttl_ms" {
		t.Errorf("field %q", body.Field)
	}
	_, body = api.ErrorOf(baton.Group{ID: "g", Policy: baton.Policy{MinTTL: -1}}.Validate(), time.Now())
	if body.Field != "policy.min_ttl_ms" {
		t.Errorf("field %q", body.Field)
	}
}
