package main

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func consulDo(t *testing.T, method, address, path, body string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+u.Host+path, strings.NewReader(body))
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

func TestConsulKeepsDataThroughAKill(t *testing.T) {
	c, s := serveOne(t, "consul")
	consulDo(t, http.MethodPut, s.URL, "/v1/kv/term", "7")
	c.must(t, "kill", s)
	c.must(t, "restart", s)
	for _, address := range []string{s.URL, s.Direct} {
		if got := consulDo(t, http.MethodGet, address, "/v1/kv/term?raw&consistent", ""); got != "7" {
			t.Errorf("after kill and restart %s says %q, want 7", address, got)
		}
	}
}
