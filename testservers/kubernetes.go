package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// kubernetes is an API server of Kubernetes with an etcd of its own, built from
// the module in kubernetes/. There is nothing else of a cluster: no nodes, no
// controllers. Its settings are the flags of kube-apiserver.
//
// Both run in one process, so whatever is done to the server is done to both.
type kubernetes struct {
	built, dir string
	roots      *x509.CertPool
}

// The tokens that the server knows: one may do anything; the other may not where
// the setting authorization-mode is RBAC.
const (
	kubernetesToken  = "testservers-admin"
	kubernetesTokens = kubernetesToken + `,admin,admin,system:masters
testservers-guest,guest,guest
`
)

func (k *kubernetes) Obtain(ctx context.Context, progress io.Writer) (err error) {
	k.built, err = buildModule(ctx, progress, "kubernetes")
	return err
}

func (k *kubernetes) Init(_ context.Context, dir string) error {
	k.dir = dir
	cert, key, err := k.makeCertificate()
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	for name, text := range map[string]string{
		"cert.pem":   string(cert),
		"key.pem":    string(key),
		"tokens.csv": kubernetesTokens,
		"kubeconfig": kubeconfig(cert),
	} {
		// The server's user has to read them, and all of it is thrown away.
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return placeProgram(k.built, filepath.Join(dir, "kubernetes"))
}

// makeCertificate makes one that signs itself. Its key signs service accounts'
// tokens too, which nobody uses.
func (k *kubernetes) makeCertificate() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "testservers"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	k.roots = x509.NewCertPool()
	k.roots.AppendCertsFromPEM(cert)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// kubeconfig names no server: the URL does.
func kubeconfig(cert []byte) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {certificate-authority-data: %s}}]
users: [{name: admin, user: {token: %s}}, {name: guest, user: {token: testservers-guest}}, {name: stranger, user: {token: guessed}}]
contexts:
- {name: admin, context: {cluster: test, user: admin}}
- {name: guest, context: {cluster: test, user: guest}}
- {name: stranger, context: {cluster: test, user: stranger}}
current-context: admin
`, base64.StdEncoding.EncodeToString(cert), kubernetesToken)
}

// Command leaves out what needs the rest of a cluster.
func (k *kubernetes) Command(dir string, port int, settings map[string]string) []string {
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	all := map[string]string{
		"bind-address":                     "127.0.0.1",
		"secure-port":                      fmt.Sprint(port),
		"external-hostname":                "127.0.0.1",
		"tls-cert-file":                    cert,
		"tls-private-key-file":             key,
		"token-auth-file":                  filepath.Join(dir, "tokens.csv"),
		"anonymous-auth":                   "false",
		"authorization-mode":               "AlwaysAllow",
		"service-account-issuer":           "https://127.0.0.1",
		"service-account-key-file":         cert,
		"service-account-signing-key-file": key,
		"service-cluster-ip-range":         "10.0.0.0/24",
		"disable-admission-plugins":        "ServiceAccount",
		"endpoint-reconciler-type":         "none",
		"profiling":                        "false",
	}
	maps.Copy(all, settings)
	argv := []string{filepath.Join(dir, "kubernetes"), filepath.Join(dir, "data")}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		argv = append(argv, "--"+name+"="+all[name])
	}
	return argv
}

func (k *kubernetes) Ready(ctx context.Context, _ string, port, _ int) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/readyz", port), nil)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+kubernetesToken)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: k.roots, MinVersion: tls.VersionTLS12},
	}}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusOK
}

// URL names the address, and a kubeconfig with contexts for admin, guest and stranger.
func (k *kubernetes) URL(addr string) string {
	return "kubernetes://" + addr + filepath.Join(k.dir, "kubeconfig")
}

// StopSignal kills: told to end, the API server waits long for who might still
// ask, and etcd has on disk what it acknowledged.
func (k *kubernetes) StopSignal() syscall.Signal { return syscall.SIGKILL }

// Sweep has nothing to do: the server keeps to its directory.
func (k *kubernetes) Sweep(string) {}
