package bound

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"baton"
)

// What is stored stays readable: these are the bytes, to the last one.
func TestRecordsAsTheyAreStored(t *testing.T) {
	granted := func(lease string) Record {
		return Record{}.grant(Holder{
			Term: 7, Node: "n", Instance: "i", Metadata: map[string]string{"a": "b", "c": "<d>"}, Seconds: 10, Lease: lease, Elected: 1000,
		})
	}
	asked := granted("")
	asked.Holder.Ending = &Ending{Reason: baton.Transferred, Note: "note", Successor: "heir"}
	gone := asked.over(baton.Resigned, nil, 500)
	again := gone.grant(Holder{Term: 8, Node: "n", Instance: "j", Seconds: 10, Elected: 1700})
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"none":                            {Record{}, `{"ended":0}`},
		"granted":                         {granted(""), `{"holder":{"term":7,"node":"n","instance":"i","metadata":{"a":"b","c":"\u003cd\u003e"},"ttl_s":10,"elected_ms":1000,"gap_ms":0},"ended":0}`},
		"granted for a lease":             {granted("694d8f2a1b3c4d5e"), `{"holder":{"term":7,"node":"n","instance":"i","metadata":{"a":"b","c":"\u003cd\u003e"},"ttl_s":10,"lease":"694d8f2a1b3c4d5e","elected_ms":1000,"gap_ms":0},"ended":0}`},
		"asked to go":                     {asked, `{"holder":{"term":7,"node":"n","instance":"i","metadata":{"a":"b","c":"\u003cd\u003e"},"ttl_s":10,"elected_ms":1000,"gap_ms":0,"ending":{"reason":"TRANSFERRED","note":"note","successor":"heir"}},"ended":0}`},
		"expired meanwhile":               {asked.over(baton.Expired, nil, 2000), `{"last":{"term":7,"node":"n","instance":"i","metadata":{"a":"b","c":"\u003cd\u003e"},"elected_ms":1000,"ended_ms":2000,"gap_ms":0,"reason":"EXPIRED","note":"note"},"successor":"heir","ended":1}`},
		"gone, by a clock that is behind": {gone, `{"last":{"term":7,"node":"n","instance":"i","metadata":{"a":"b","c":"\u003cd\u003e"},"elected_ms":1000,"ended_ms":1000,"gap_ms":0,"reason":"TRANSFERRED","note":"note"},"successor":"heir","ended":1}`},
		"granted again":                   {again, `{"holder":{"term":8,"node":"n","instance":"j","ttl_s":10,"elected_ms":1700,"gap_ms":700},"last":{"term":7,"node":"n","instance":"i","metadata":{"a":"b","c":"\u003cd\u003e"},"elected_ms":1000,"ended_ms":1000,"gap_ms":0,"reason":"TRANSFERRED","note":"note"},"ended":1}`},
		"a line of the ring":              {*again.over(baton.Resigned, nil, 2500).Last, `{"term":8,"node":"n","instance":"j","elected_ms":1700,"ended_ms":2500,"gap_ms":700,"reason":"RESIGNED"}`},
	} {
		got, err := json.Marshal(c.value)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, c.want)
		}
		if want, ok := c.value.(Record); ok {
			if back, err := Read[Record](Entry{Value: got}); err != nil || !reflect.DeepEqual(back, want) {
				t.Errorf("%s reads back as %+v, %v", name, back, err)
			}
		}
	}
}

func TestGroupsAsTheyAreStored(t *testing.T) {
	full := baton.Group{ID: "g", Policy: baton.Policy{MinTTL: 1, MaxTTL: 2, RetryAfter: 3}, AllowedNodes: []string{"a", "b"}}
	for _, c := range []struct {
		g        baton.Group
		replaces uint64
		want     string
	}{
		{baton.Group{ID: "g"}, 0, `{}`},
		{full, 0, `{"min_ttl_ns":1,"max_ttl_ns":2,"retry_after_ns":3,"allowed_nodes":["a","b"]}`},
		{full, 41, `{"min_ttl_ns":1,"max_ttl_ns":2,"retry_after_ns":3,"allowed_nodes":["a","b"],"replaces":41}`},
	} {
		got, err := FormatGroup(c.g, c.replaces)
		if err != nil || string(got) != c.want {
			t.Errorf("got %s, %v; want %s", got, err, c.want)
		}
		c.g.Version = 42
		if back, err := Keys("p").ReadGroup(Entry{Key: "p/policies/g", Value: got, Version: 42}); err != nil || !reflect.DeepEqual(back, c.g) {
			t.Errorf("%s reads back as %+v, %v", got, back, err)
		}
	}
}

func TestKeysAsTheyAreStored(t *testing.T) {
	k, c := Keys("/baton"), baton.Candidate{NodeID: "n", InstanceID: "i"}
	for got, want := range map[string]string{
		k.Slot("g", Record{Ended: 1}):   "/baton/past/g/00",
		k.Slot("g", Record{Ended: 99}):  "/baton/past/g/98",
		k.Slot("g", Record{Ended: 100}): "/baton/past/g/00",
		k.Place("g", c):                 "/baton/line/g/n/i",
		k.Term("g"):                     "/baton/terms/g",
		k.Policy("g"):                   "/baton/policies/g",
		k.Floor():                       "/baton/floor",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := ReadPlace(k.Place("g", c)); got != PlaceOf(c) {
		t.Errorf("a place reads back as %+v", got)
	}
}

func TestTermsAsTheyAreStored(t *testing.T) {
	for _, term := range []baton.Term{0, 7, baton.MaxTerm} {
		if got, err := ReadTerm(Entry{Value: []byte(FormatTerm(term))}); err != nil || got != term {
			t.Errorf("%d reads back as %d, %v", term, got, err)
		}
	}
	for _, text := range []string{"", "-1", "x", "18446744073709551615"} {
		if got, err := ReadTerm(Entry{Key: "terms/g", Value: []byte(text)}); err == nil || !strings.Contains(err.Error(), "terms/g") {
			t.Errorf("%q was taken for term %d, %v", text, got, err)
		}
	}
}

func TestGroupsAreThoseLedAndThoseRegistered(t *testing.T) {
	k := Keys("p")
	terms := []Entry{{Key: "p/terms/b", Value: []byte("1")}, {Key: "p/terms/a", Value: []byte("2")}}
	got, err := k.ReadGroups(terms, []Entry{{Key: "p/policies/c", Value: []byte(`{}`), Version: 4}, {Key: "p/policies/b", Value: []byte(`{"min_ttl_ns":1000000000}`), Version: 3}})
	want := []baton.Group{{ID: "a"}, {ID: "b", Policy: baton.Policy{MinTTL: time.Second}, Version: 3}, {ID: "c", Version: 4}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	var syntax *json.SyntaxError
	if _, err := k.ReadGroups(nil, []Entry{{Key: "p/policies/c", Value: []byte(`{`)}}); !errors.As(err, &syntax) || !strings.Contains(err.Error(), "p/policies/c") {
		t.Errorf("a policy that is none: %v", err)
	}
}
