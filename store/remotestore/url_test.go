package remotestore

import (
	"slices"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for address, want := range map[string]Config{
		"http://h:7400":               {Servers: []string{"http://h:7400"}},
		"http://h:1,i:2/below":        {Servers: []string{"http://h:1/below", "http://i:2/below"}},
		"https://:s%40cret@h:1,[::1]": {Servers: []string{"https://h:1", "https://[::1]"}, Token: "s@cret"},
	} {
		got, err := parseURL(address)
		if err != nil || !slices.Equal(got.Servers, want.Servers) || got.Token != want.Token {
			t.Errorf("%s: got %+v, %v; want %+v", address, got, err, want)
		}
		if (got.TLS != nil) != strings.HasPrefix(address, "https") {
			t.Errorf("%s: TLS %v", address, got.TLS)
		}
	}
	for _, address := range []string{"", "h:7400", "ftp://h", "http://", "http://ann:secret@h", "http://h?ca=x", "https://h?token=secret", "https://h?ca=/does/not/exist"} {
		if got, err := parseURL(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %+v, %v; want an error that shows no token", address, got, err)
		}
	}
}
