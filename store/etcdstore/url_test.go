package etcdstore

import (
	"reflect"
	"strings"
	"testing"

	"baton"
)

func TestParseURL(t *testing.T) {
	for address, want := range map[string]Config{
		"etcd://h":                        {Endpoints: []string{"h"}},
		"etcd://h:2379":                   {Endpoints: []string{"h:2379"}},
		"etcd://h:2379,i:2379/teams/ops":  {Endpoints: []string{"h:2379", "i:2379"}, Prefix: "/teams/ops"},
		"etcd://[::1]:2379/p":             {Endpoints: []string{"[::1]:2379"}, Prefix: "/p"},
		"etcd://ann:p%40ss@h:1,i:2/p%20q": {Endpoints: []string{"h:1", "i:2"}, Prefix: "/p q", Username: "ann", Password: "p@ss"},
		"etcd://ann:p@ss@h:1":             {Endpoints: []string{"h:1"}, Username: "ann", Password: "p@ss"},
	} {
		got, err := parseURL(address)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", address, got, err, want)
		}
	}
	if got, err := parseURL("etcds://h:2379"); err != nil || got.TLS == nil {
		t.Errorf("etcds: got %+v, %v; want TLS", got, err)
	}
	for _, address := range []string{
		"", "etcd", "etcd:", "http://h:2379", "etcd://", "etcd:///p", "etcd://h,,i", "etcd://ann:secret@",
		"etcd://h?ca=x", "etcds://h?ca=/does/not/exist", "etcds://h?cert=/does/not/exist", "etcds://h?unknown=1",
		"etcd://ann:secret%@h",
	} {
		if got, err := parseURL(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %+v, %v; want an error that shows no password", address, got, err)
		}
	}
}

func TestCursorsThatAreNone(t *testing.T) {
	for _, c := range []string{"", "-", "0000000000000001-", "0000000000000001-0", "0000000000000001--1", "1-1", "000000000000000g-1", "0000000000000001-99999999999999999999"} {
		if _, _, ok := parseCursor(baton.Cursor(c)); ok {
			t.Errorf("%q was taken for a cursor", c)
		}
	}
	place, revision, ok := parseCursor(formatCursor(0xabc, 42))
	if !ok || place != 0xabc || revision != 42 {
		t.Errorf("a cursor reads back as %x, %d, %t", place, revision, ok)
	}
}
