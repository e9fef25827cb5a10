package server

import (
	"errors"
	"testing"
	"time"

	"baton"
)

const sec = time.Second

func TestDefaultPolicyIsClippedToTheStore(t *testing.T) {
	p := baton.Policy{MinTTL: sec / 2, MaxTTL: 300 * sec}
	r, err := clipDefault(p, baton.Guarantees{Store: "slow", MinTTL: 10 * sec, MaxTTL: 60 * sec})
	if err != nil || r.min != 10*sec || r.max != 60*sec {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := clipDefault(p, baton.Guarantees{Store: "odd", MinTTL: 400 * sec, MaxTTL: 500 * sec}); err == nil {
		t.Error("a policy of which nothing is left was accepted")
	}
	// A TTL is rounded up to the store's step: no bound must lie between two.
	r, err = clipDefault(baton.Policy{MinTTL: sec / 2, MaxTTL: 4 * sec / 3}, baton.Guarantees{Store: "coarse", MaxTTL: 60 * sec, TTLStep: sec})
	if err != nil || r.max != sec {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := clipDefault(baton.Policy{MinTTL: 2 * sec, MaxTTL: sec}, baton.Guarantees{MaxTTL: baton.MaxTTL}); !errors.Is(err, baton.ErrInvalidArgument) {
		t.Errorf("upside down: %v", err)
	}
}

func TestPolicyBetweenTwoStepsIsRefused(t *testing.T) {
	coarse := baton.Guarantees{Store: "coarse", MinTTL: sec, MaxTTL: 60 * sec, TTLStep: sec}
	for maximum, ok := range map[time.Duration]bool{0: true, 2 * sec: true, 5 * sec / 2: false} {
		if err := checkPolicy(baton.Policy{MinTTL: 3 * sec / 2, MaxTTL: maximum}, coarse); (err == nil) != ok {
			t.Errorf("at most %v: %v", maximum, err)
		}
	}
}

func TestRegistrationFillsUpWithTheDefault(t *testing.T) {
	p := newPolicies(rules{min: sec / 2, max: 300 * sec}, sec, baton.SystemClock())
	for _, tc := range []struct {
		policy   baton.Policy
		min, max time.Duration
	}{
		{baton.Policy{}, sec / 2, 300 * sec},
		{baton.Policy{MinTTL: 2 * sec, MaxTTL: 15 * sec}, 2 * sec, 15 * sec},
		{baton.Policy{MinTTL: 400 * sec}, 400 * sec, 400 * sec},
		{baton.Policy{MaxTTL: sec / 10}, sec / 10, sec / 10},
		{baton.Policy{MaxTTL: 10 * sec}, sec / 2, 10 * sec},
	} {
		if r := p.fill(baton.Group{Policy: tc.policy}); r.min != tc.min || r.max != tc.max {
			t.Errorf("%+v: %v to %v, want %v to %v", tc.policy, r.min, r.max, tc.min, tc.max)
		}
	}
}

func TestRetryStaysInItsBounds(t *testing.T) {
	for range 1000 {
		for _, left := range []time.Duration{-sec, 0, sec, 3 * sec, time.Hour} {
			if d := (rules{}).retry(left); d < sec/10 || d > 5*sec {
				t.Fatalf("%v left: retry after %v", left, d)
			}
		}
		if d := (rules{retryAfter: sec}).retry(0); d < sec || d > sec+sec/10 {
			t.Fatalf("retry after %v", d)
		}
	}
}
