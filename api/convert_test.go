package api_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"baton"
	"baton/api"
)

// overTheWire is v after one trip as JSON.
func overTheWire[T any](t *testing.T, v T) T {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func TestConversionsComeBackWhole(t *testing.T) {
	lease := baton.Lease{
		Group: "g", Term: baton.MaxTerm, NodeID: "n", InstanceID: "i", Metadata: map[string]string{"zone": "a"},
		TTL: 5 * time.Second, Remaining: 4 * time.Second,
		Ending: &baton.Ending{Reason: baton.Transferred, Note: "why", Successor: "m"},
	}
	if back := overTheWire(t, api.LeaderOf(lease, time.Now())).Lease("g"); !reflect.DeepEqual(back, lease) {
		t.Errorf("lease %+v", back)
	}
	event := baton.Event{
		Type: baton.LeaderLost, Group: "g", Term: 4, PreviousNodeID: "n", Reason: baton.Expired,
		Gap: true, Time: time.UnixMilli(1735200010000), Cursor: "c-1",
	}
	if back := overTheWire(t, api.EventOf(event)).Event(); !reflect.DeepEqual(back, event) {
		t.Errorf("event %+v", back)
	}
	group := baton.Group{ID: "g", Policy: baton.Policy{MinTTL: time.Second, RetryAfter: time.Minute}, AllowedNodes: []string{"a", "b"}, Version: 3}
	if back := overTheWire(t, api.GroupOf(group)).Group(); !reflect.DeepEqual(back, group) {
		t.Errorf("group %+v", back)
	}
	history := []baton.PastTerm{
		{Term: 1, NodeID: "a", InstanceID: "i", ElectedAt: time.UnixMilli(1), EndedAt: time.UnixMilli(9), Reason: baton.Resigned, Note: "n"},
		{Term: 2, NodeID: "b", InstanceID: "j", ElectedAt: time.UnixMilli(12), Gap: 3 * time.Millisecond},
	}
	if back := overTheWire(t, api.HistoryOf(history)).History(); !reflect.DeepEqual(back, history) {
		t.Errorf("history %+v", back)
	}
	g := baton.Guarantees{Store: "memory", MinTTL: time.Millisecond, MaxTTL: baton.MaxTTL, TTLStep: time.Millisecond, Time: baton.TimeMonotonic, Extends: true, Waiting: baton.WaitLine, Transfers: true, Caveats: []string{"forgets"}}
	if back := overTheWire(t, api.GuaranteesOf(g)).Guarantees(); !reflect.DeepEqual(back, g) {
		t.Errorf("guarantees %+v", back)
	}
}

func TestCampaignOutcome(t *testing.T) {
	retry := int64(800)
	lost := api.CampaignResponse{Leader: &api.Leader{NodeID: "n", InstanceID: "i", Term: 41}, RetryAfter: &retry}
	_, err := lost.Lease("g")
	var held *baton.HeldError
	if !errors.As(err, &held) || held.Lease.NodeID != "n" || held.Lease.Term != 41 || held.RetryAfter != 800*time.Millisecond {
		t.Errorf("lost: %#v", err)
	}
	won := api.CampaignResponse{IsLeader: true, Leader: &api.Leader{NodeID: "n", InstanceID: "i", Term: 42}}
	if l, err := won.Lease("g"); err != nil || l.Term != 42 {
		t.Errorf("won: %+v, %v", l, err)
	}
	vacant := api.LeaderResponse{Term: 9}
	if l := vacant.Lease("g"); l.Held() || l.Term != 9 {
		t.Errorf("vacant: %+v", l)
	}
}
