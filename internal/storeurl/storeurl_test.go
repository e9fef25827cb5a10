package storeurl_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"baton/internal/storeurl"
)

func TestParse(t *testing.T) {
	for address, want := range map[string]storeurl.URL{
		"x://":                    {Scheme: "x"},
		"x:///p":                  {Scheme: "x", Path: "/p"},
		"x://h":                   {Scheme: "x", Hosts: []string{"h"}},
		"x://[::1]:1,h:2/p%20q":   {Scheme: "x", Hosts: []string{"[::1]:1", "h:2"}, Path: "/p q"},
		"x://ann:p%40ss@h:1":      {Scheme: "x", Hosts: []string{"h:1"}, Username: "ann", Password: "p@ss"},
		"x://ann:p@ss@h:1":        {Scheme: "x", Hosts: []string{"h:1"}, Username: "ann", Password: "p@ss"},
		"x://h?a=1&b=two%20words": {Scheme: "x", Hosts: []string{"h"}, Options: url.Values{"a": {"1"}, "b": {"two words"}}},
	} {
		if want.Options == nil {
			want.Options = url.Values{}
		}
		got, err := storeurl.Parse(address, "x://host")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", address, got, err, want)
		}
	}
	for _, address := range []string{"", "x", "x:h", "x://h,,i", "x://,h", "x://ann:secret%@h", "x://h?a=%zz", "x://h?a=1;secret"} {
		if got, err := storeurl.Parse(address, "x://host"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %+v, %v; want an error that shows nothing of it", address, got, err)
		}
	}
}

func TestOnly(t *testing.T) {
	u, err := storeurl.Parse("x://h?a=1", "x://host")
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Only("a", "b"); err != nil {
		t.Error(err)
	}
	for _, known := range [][]string{nil, {"b", "c"}} {
		if err := u.Only(known...); err == nil {
			t.Errorf("a was let through where only %q are known", known)
		}
	}
}
