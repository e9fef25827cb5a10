package remotestore

import (
	"encoding/json"
	"testing"
)

func TestHasField(t *testing.T) {
	for _, tt := range []struct {
		object string
		want   bool
	}{
		{`{"term":1}`, true},
		{`{"leader":null,"term":0}`, true},
		{` { "leader" : {"node_id":"n"} ,` + "\n" + `"term" : 1 } `, true},
		{`{}`, false},
		{`{"leader":{"term":1}}`, false},
		{`{"leaders":[{"term":1}]}`, false},
		{`{"leader":"term"}`, false},
		{`{"leader":"\"term\":1"}`, false},
		{`{"leader":"\\","term":1}`, true},
		{`{"leader":"}","term":1}`, true},
		{`{"leader":["{",{"term":1},"term"]}`, false},
		{`{"xterm":1,"terms":2,"":3}`, false},
	} {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(tt.object), &fields); err != nil {
			t.Fatalf("%s: %v", tt.object, err)
		}
		if _, has := fields["term"]; has != tt.want {
			t.Fatalf("%s: this test wants %t", tt.object, tt.want)
		}
		if got := hasField([]byte(tt.object), "term"); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.object, got, tt.want)
		}
	}
}
