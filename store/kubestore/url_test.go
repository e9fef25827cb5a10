package kubestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://c:6443"}}, {name: d, cluster: {server: "https://d:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: d, user: u, namespace: team}}
current-context: one
`

func TestParseURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(testKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string][2]string{
		"kubernetes://" + file:                                        {"https://c:6443", "default"},
		"kubernetes://" + file + "?context=two":                       {"https://d:6443", "team"},
		"kubernetes://" + file + "?context=two&namespace=n":           {"https://d:6443", "n"},
		"kubernetes://127.0.0.1:1234" + file + "?namespace=kube-node": {"https://127.0.0.1:1234", "kube-node"},
	} {
		cfg, err := parseURL(address)
		if err != nil || cfg.REST.Host != want[0] || cfg.Namespace != want[1] || cfg.REST.BearerToken != "secret" {
			t.Errorf("%s: got %+v, %v; want %v", address, cfg, err, want)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, address := range []string{
		"", "kubernetes", "etcd://h", "kubernetes://", "kubernetes:///", "kubernetes://h:1", "kubernetes://?context=one",
		"kubernetes:///does/not/exist", "kubernetes://a,b" + file, "kubernetes://ann:secret@h" + file,
		"kubernetes://" + file + "?context=three", "kubernetes://" + file + "?prefix=p",
	} {
		if cfg, err := parseURL(address); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %+v, %v; want an error that shows no password", address, cfg, err)
		}
	}
}
