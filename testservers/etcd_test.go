package main

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// etcdDo posts to etcd's gateway from JSON, which takes and gives base64.
func etcdDo(t *testing.T, address, path, body string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+u.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s, %v", path, response.Status, answer, err)
	}
	return string(answer)
}

func TestEtcdKeepsDataThroughAKill(t *testing.T) {
	c, s := serveOne(t, "etcd")
	etcdDo(t, s.URL, "/v3/kv/put", `{"key":"dGVybQ==","value":"Nw=="}`) // term, 7
	c.must(t, "kill", s)
	c.must(t, "restart", s)
	for _, address := range []string{s.URL, s.Direct} {
		if got := etcdDo(t, address, "/v3/kv/range", `{"key":"dGVybQ=="}`); !strings.Contains(got, `"value":"Nw=="`) {
			t.Errorf("after kill and restart %s says %s, want the value 7", address, got)
		}
	}
}
