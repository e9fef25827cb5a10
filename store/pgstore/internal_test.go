package pgstore

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/storecall"
)

func TestParseURL(t *testing.T) {
	for address, want := range map[string]Config{
		"postgres://h":               {URL: "postgres://h"},
		"postgresql://ann@h:5432/db": {URL: "postgresql://ann@h:5432/db"},
		"postgres://ann:p%40ss@h:1,i:2/db?sslmode=require": {URL: "postgres://ann:p%40ss@h:1,i:2/db?sslmode=require"},
		"postgres://h/db?baton_schema=leases":              {URL: "postgres://h/db", Schema: "leases"},
		"postgres:///db?host=%2Frun%2Fpg&baton_schema=a":   {URL: "postgres:///db?host=%2Frun%2Fpg", Schema: "a"},
	} {
		got, err := parseURL(address)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", address, got, err, want)
		}
	}
	for _, address := range []string{
		"", "postgres:", "http://h", "mysql://h", "postgres://ann:secret@h?baton_schema=", "postgres://h?baton_schema=A",
		"postgres://h?baton_schema=pg_x", "postgres://h?baton_schema=" + strings.Repeat("a", 51), "postgres://ann:secret@h?baton_prefix=x",
		"postgres://ann:secret@h?x=%zz", "postgres://ann:secret@h:port/db", "postgres://ann:secret@h/db?sslmode=perhaps",
	} {
		if _, err := Open(t.Context(), address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v; want an error that shows no password", address, err)
		}
	}
	if _, err := New(t.Context(), Config{URL: "postgres://h", Timeout: -1}); !errors.Is(err, baton.ErrInvalidArgument) {
		t.Errorf("a negative timeout: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for number, ok := range map[string]bool{"90624": false, "120022": false, "130000": true, "150018": true, "180001": true, "": false, "x": false} {
		if err := checkVersion(number, "12.22"); (err == nil) != ok {
			t.Errorf("server_version_num %q: %v", number, err)
		}
	}
	if err := checkVersion("120022", "12.22"); !errors.Is(err, baton.ErrConflict) || !strings.Contains(err.Error(), "Postgres 12.22: want 13") {
		t.Errorf("too old: %v", err)
	}
}

func TestPromises(t *testing.T) {
	for _, tt := range []struct {
		standbys, fsync   string
		durable, failover bool
		caveat            string
	}{
		{"", "on", true, false, "synchronous_standby_names is empty"},
		{"FIRST 1 (a, b)", "on", true, true, "fail over only to a standby that was synchronous"},
		{"a", "off", false, false, "fsync is off"},
	} {
		g := promise(tt.standbys, tt.fsync)
		if g.DurableTerms != tt.durable || g.FailoverTerms != tt.failover || !strings.Contains(strings.Join(g.Caveats, "\n"), tt.caveat) {
			t.Errorf("%+v: got %+v", tt, g)
		}
	}
	if len(guarantees.Caveats) != 2 {
		t.Errorf("the caveats of one server are told of all: %q", guarantees.Caveats)
	}
}

func TestHintsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "open", "led", "led g x", "open g n", "open g n i x", "shut g", "led  g"} {
		if _, _, ok := parseHint(text); ok {
			t.Errorf("%q was taken for a hint", text)
		}
	}
	group, h, ok := parseHint("open g n i")
	if !ok || group != "g" || !h.open || !h.names(baton.Candidate{NodeID: "n", InstanceID: "i"}) || h.names(baton.Candidate{NodeID: "n", InstanceID: "j"}) {
		t.Errorf("got %q, %+v, %t", group, h, ok)
	}
}

// The deadline that the next one counts to is of the leadership before: it
// looks again. The others have no business yet.
func TestTheNextLooksWhenSomebodyLeads(t *testing.T) {
	for who, want := range map[string]time.Duration{"i": 0, "j": signEvery} {
		synctest.Test(t, func(t *testing.T) {
			group, h, ok := parseHint("led g n " + who)
			if !ok || group != "g" {
				t.Fatalf("got %q, %+v, %t", group, h, ok)
			}
			e, begun := &ear{heard: make(chan hint, 1)}, time.Now()
			e.take(h)
			called, err := e.await(t.Context(), baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Second)
			if took := time.Since(begun); called || err != nil || took != want {
				t.Errorf("%s is next: looked after %v, called %t, %v; want %v", who, took, called, err, want)
			}
		})
	}
}

// A release that was answered late does not wait for a hint beyond its timeout.
func TestTellingDoesNotExceedTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 700 * time.Millisecond
		s := &Store{timeout: timeout, calls: storecall.New(timeout, errTimeout, kindOf)}
		s.announcer = newAnnouncer(s.calls.Life(), func([]string) { <-s.calls.Life().Done() })
		begun := time.Now()
		time.Sleep(500 * time.Millisecond) // of the bubble
		s.tellBefore(t.Context(), "g", begun)
		if took := time.Since(begun); took != s.timeout {
			t.Errorf("took %v: want the timeout, %v", took, s.timeout)
		}
		s.calls.Close()
		s.announcer.wait()
	})
}
