package redisstore

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"

	"baton"
)

func TestParseURL(t *testing.T) {
	for address, want := range map[string]Config{
		"redis://h":                             {Addresses: []string{"h:6379"}},
		"redis://[::1]/2":                       {Addresses: []string{"[::1]:6379"}, DB: 2},
		"redis://:secret@h:1/0":                 {Addresses: []string{"h:1"}, Password: "secret"},
		"redis://ann:s%40cret@h:1?prefix=p":     {Addresses: []string{"h:1"}, Username: "ann", Password: "s@cret", Prefix: "p"},
		"redis://h:1,i:2?cluster=true":          {Addresses: []string{"h:1", "i:2"}, Cluster: true},
		"redis://h:1?cluster=false&prefix=a.b":  {Addresses: []string{"h:1"}, Prefix: "a.b"},
		"rediss://h:1/3?prefix=x&cluster=false": {Addresses: []string{"h:1"}, DB: 3, Prefix: "x", TLS: &tls.Config{MinVersion: tls.VersionTLS12}},
	} {
		if got, err := parseURL(address); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", address, got, err, want)
		}
	}
	for _, address := range []string{
		"", "h:6379", "http://h", "redis://", "redis:///0", "redis://:secret@h/zero", "redis://h?db=1", "redis://h?cluster=maybe",
		"redis://h?ca=x", "rediss://h?ca=/does/not/exist", "redis://:secret%@h",
	} {
		if got, err := parseURL(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %+v, %v; want an error that shows no password", address, got, err)
		}
	}
	for _, address := range []string{"redis://h,i", "redis://h/1?cluster=true", "redis://h/-1", "redis://h?prefix=a{b}", "redis://h?prefix=.."} {
		if _, err := Open(t.Context(), address); err == nil {
			t.Errorf("%q was opened", address)
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for version, good := range map[string]bool{
		"6.0.0": true, "6.2.14": true, "7.0.15": true, "10.1.0": true, "255.255.255": true,
		"5.0.14": false, "2.8.24": false, "": false, "new": false,
	} {
		if err := checkVersion(version); (err == nil) != good {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// Of two masters of a cluster the worse one counts.
func TestSurveyOfSeveral(t *testing.T) {
	good := survey{appendOnly: "yes", appendFsync: "always"}
	lazy := survey{appendOnly: "yes", appendFsync: "everysec"}
	full := survey{appendOnly: "yes", appendFsync: "always", evicts: true, memoryPolicy: "allkeys-lru"}
	for _, tt := range []struct{ a, b, want survey }{
		{good, good, good},
		{good, lazy, lazy},
		{lazy, good, lazy},
		{lazy, full, survey{appendOnly: "yes", appendFsync: "everysec", evicts: true, memoryPolicy: "allkeys-lru"}},
		{full, good, full},
	} {
		if got := tt.a.or(tt.b); got != tt.want {
			t.Errorf("%+v or %+v: got %+v", tt.a, tt.b, got)
		}
	}
}

func TestCursors(t *testing.T) {
	for _, p := range []position{{term: 0}, {term: 7}, {term: baton.MaxTerm, began: true}} {
		got, place, ok := parseCursor(formatCursor(p, 0xabc))
		if !ok || got != p || place != 0xabc {
			t.Errorf("%+v became %+v of %x, %t", p, got, place, ok)
		}
	}
	for _, c := range []baton.Cursor{"0000000000000abc-7", "0000000000000abc-7-", "abc-7-ended", "0000000000000abc--7-ended", "0000000000000abc-9007199254740992-began"} {
		if _, _, ok := parseCursor(c); ok {
			t.Errorf("%s was read", c)
		}
	}
}
