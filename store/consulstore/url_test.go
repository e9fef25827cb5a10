package consulstore

import (
	"reflect"
	"strings"
	"testing"

	"baton"
	"baton/internal/bound"
)

func TestParseURL(t *testing.T) {
	for address, want := range map[string]Config{
		"consul://h":                          {Address: "h:8500"},
		"consul://h:1/teams/ops":              {Address: "h:1", Prefix: "/teams/ops"},
		"consul://[::1]":                      {Address: "[::1]:8500"},
		"consul://[::1]:1/p":                  {Address: "[::1]:1", Prefix: "/p"},
		"consul://:t0k%40n@h/p%20q?dc=eu":     {Address: "h:8500", Prefix: "/p q", Token: "t0k@n", Datacenter: "eu"},
		"consul://h?node=leases":              {Address: "h:8500", Node: "leases"},
		"consul://:t0ken@h:8500?dc=a&node=b1": {Address: "h:8500", Token: "t0ken", Datacenter: "a", Node: "b1"},
	} {
		got, err := parseURL(address)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", address, got, err, want)
		}
	}
	if got, err := parseURL("consuls://h"); err != nil || got.TLS == nil || got.Address != "h:8501" {
		t.Errorf("consuls: got %+v, %v; want TLS at the port for it", got, err)
	}
	for _, address := range []string{
		"", "consul", "consul:", "http://h:8500", "consul://", "consul:///p", "consul://h,i", "consul://ann:secret@h",
		"consul://h?ca=x", "consuls://h?ca=/does/not/exist", "consuls://h?cert=/does/not/exist", "consul://h?unknown=1",
		"consul://:secret%@h",
	} {
		if got, err := parseURL(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %+v, %v; want an error that shows no token", address, got, err)
		}
	}
}

// Consul's HTTP server cleans paths, so a prefix is clean from the start.
func TestPrefixes(t *testing.T) {
	for given, want := range map[string]bound.Keys{
		"": "baton", "/": "baton", "a": "a", "/a/b/": "a/b", "a//b/./c": "a/b/c", "../a": "a", "p q": "p q",
	} {
		if got := prefix(given).Keys; got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for version, old := range map[string]bool{
		"1.22.7": false, "1.14.0": false, "1.14.0-beta1": false, "2.0.0": false, "1.100": false, "1.22.7+ent": false, "dev": false, "": false,
		"1.13.9": true, "1.9.0": true, "0.9.3": true,
	} {
		if err := checkVersion(version); (err != nil) != old {
			t.Errorf("%q: got %v; too old is %t", version, err, old)
		}
	}
}

func TestCursorsThatAreNone(t *testing.T) {
	for _, c := range []string{"", "-", "--", "ab-l-", "ab-l--1", "ab-x-1", "cd-l-1", "ab-l-1-1", "ab-l-99999999999999999999"} {
		if m, ok := parseCursor("ab", baton.Cursor(c)); ok {
			t.Errorf("%q was taken for a cursor: %+v", c, m)
		}
	}
	if _, ok := parseCursor("", formatCursor("", mark{7, led})); ok {
		t.Error("a cursor of no store was taken for one")
	}
	for _, m := range []mark{{7, led}, {7, lost}, {0, never}} {
		if got, ok := parseCursor("ab", formatCursor("ab", m)); !ok || got != m {
			t.Errorf("a cursor reads back as %+v, %t: want %+v", got, ok, m)
		}
	}
}

// What a watch makes up from the past is what it would have seen.
func TestChangesSinceAMark(t *testing.T) {
	ended := func(terms ...baton.Term) (all []bound.Past) {
		for _, term := range terms {
			all = append(all, bound.Past{Term: term, Node: "n", Instance: "i", Reason: baton.Resigned})
		}
		return all
	}
	leads := bound.Record{Holder: &bound.Holder{Term: 5, Node: "n", Instance: "j"}, Last: &ended(4)[0], Ended: 2}
	vacant := bound.Record{Last: &ended(4)[0], Ended: 2}
	stands := bound.State{Record: leads, Bound: true}
	for _, c := range []struct {
		name  string
		st    state
		from  mark
		want  []mark
		known bool
	}{
		{"nothing new", state{State: stands, past: ended(3, 4)}, mark{5, led}, nil, true},
		{"one grant", state{State: stands, past: ended(3, 4)}, mark{4, lost}, []mark{{5, led}}, true},
		{"an end and a grant", state{State: stands, past: ended(3, 4)}, mark{4, led}, []mark{{4, lost}, {5, led}}, true},
		{"a whole term between", state{State: bound.State{Record: vacant}, past: ended(3, 4)}, mark{3, lost}, []mark{{4, led}, {4, lost}}, true},
		{"from the beginning", state{State: bound.State{Record: vacant, Floor: 2}, past: ended(3, 4)}, mark{2, never}, []mark{{3, led}, {3, lost}, {4, led}, {4, lost}}, true},
		{"from the beginning, deleted meanwhile", state{State: bound.State{Record: vacant, Floor: 2}, past: ended(3, 4)}, mark{1, never}, nil, false},
		{"from the beginning, overwritten since", state{State: bound.State{Record: bound.Record{Last: &ended(4)[0], Ended: 102}, Floor: 2}, past: ended(3, 4)}, mark{2, never}, nil, false},
		{"a term that is forgotten", state{State: bound.State{Record: vacant}, past: ended(3, 4)}, mark{2, lost}, nil, false},
		{"deleted", state{State: bound.State{Floor: 4}}, mark{4, lost}, nil, false},
		{"still nobody", state{State: bound.State{Floor: 4}}, mark{4, never}, nil, true},
	} {
		got, known := c.st.since(c.from)
		if known != c.known {
			t.Errorf("%s: known is %t", c.name, known)
		}
		var marks []mark
		for _, ev := range got {
			marks = append(marks, markOf(ev))
		}
		if known && !reflect.DeepEqual(marks, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, marks, c.want)
		}
	}
}
