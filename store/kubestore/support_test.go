package kubestore_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"baton/internal/leak"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) { leak.Main(m) }

// config reads a server's URL as client-go does.
func config(t testing.TB, address, user string) *rest.Config {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: user}
	overrides.ClusterInfo.Server = "https://" + u.Host
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: filepath.FromSlash(u.Path)}, overrides).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// client is one to look and to meddle, past the proxy.
func client(t testing.TB, s *testserver.Server) *kubernetes.Clientset {
	t.Helper()
	cfg := config(t, s.Direct, "admin")
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(h.Transport) })
	c, err := kubernetes.NewForConfigAndClient(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var namespaces atomic.Int64

// freshNamespace makes a namespace.
func freshNamespace(t *testing.T, c kubernetes.Interface) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", namespaces.Add(1))
	drill.Eventually(t, "a namespace", func() bool {
		_, err := c.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	return name
}

// open opens a store through the proxy.
func open(t *testing.T, s *testserver.Server, namespace string) *kubestore.Store {
	t.Helper()
	store, err := kubestore.New(kubestore.Config{REST: config(t, s.URL, "admin"), Namespace: namespace, Timeout: drill.Unhurried})
	return drill.Opened(t, store, err)
}

// fresh is a store in a namespace of its own, on a server that is not hurt.
func fresh(t *testing.T) (*kubestore.Store, *kubernetes.Clientset, string) {
	t.Helper()
	s := testserver.Shared(t, testserver.Kubernetes)
	c := client(t, s)
	namespace := freshNamespace(t, c)
	return open(t, s, namespace), c, namespace
}
