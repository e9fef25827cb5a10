package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubernetesDo asks an API server over TLS, as its administrator.
func kubernetesDo(t *testing.T, s *serverInfo, method, address, path, body string) (int, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := os.ReadFile(filepath.Join(s.Dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+u.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+kubernetesToken)
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func TestKubernetesKeepsDataThroughAKill(t *testing.T) {
	c, s := serveOne(t, "kubernetes")
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	eventually(t, "the default namespace", func() bool {
		status, _ := kubernetesDo(t, s, http.MethodPost, s.URL, leases, `{"metadata":{"name":"g"},"spec":{"holderIdentity":"me"}}`)
		return status == http.StatusCreated
	})
	c.must(t, "kill", s)
	c.must(t, "restart", s)
	for _, address := range []string{s.URL, s.Direct} {
		if _, got := kubernetesDo(t, s, http.MethodGet, address, leases+"/g", ""); !strings.Contains(got, `"holderIdentity":"me"`) {
			t.Errorf("after kill and restart %s says %q, want me for the holder", address, got)
		}
	}
}
