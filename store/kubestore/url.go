package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"baton"
	"baton/internal/storeurl"
)

const example = "kubernetes:///path/to/kubeconfig?namespace=NAMESPACE&context=CONTEXT"

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name:       "kubernetes",
		Schemes:    []string{"kubernetes"},
		Form:       example,
		Guarantees: guarantees,
		Open:       func(ctx context.Context, url string) (baton.Store, error) { return Open(ctx, url) },
	})
}

// Open makes a store from a URL:
//
//	kubernetes://                                         in a pod, as its service account
//	kubernetes:///path/to/kubeconfig?namespace=n&context=c
//	kubernetes://host:6443/path/to/kubeconfig             at another address than the file says
//
// Without a namespace it is the pod's, or the context's, or "default".
//
// Credentials that are wrong, that do not suffice, a namespace that is not
// there and a server that is too old are errors here. A server that cannot be
// reached is not: it may come back.
func Open(ctx context.Context, address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open kubernetes store: %w", err)
	}
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open kubernetes store: %w", err), s.Close())
	}
	return s, nil
}

func parseURL(address string) (Config, error) {
	u, err := storeurl.Parse(address, example)
	switch {
	case err != nil:
		return Config{}, err
	case u.Scheme != "kubernetes":
		return Config{}, errors.New("want a URL such as " + example)
	case len(u.Hosts) > 1:
		return Config{}, errors.New("several hosts are given: a URL has one, that of the API server or of what balances it")
	case u.Username != "" || u.Password != "":
		return Config{}, errors.New("a user is given: credentials are taken from the kubeconfig")
	}
	if err := u.Only("namespace", "context"); err != nil {
		return Config{}, err
	}
	if u.Path == "" || u.Path == "/" {
		if len(u.Hosts) > 0 || u.Options.Has("context") {
			return Config{}, errors.New("a kubeconfig is missing: want a URL such as " + example)
		}
		return inPod(u.Options.Get("namespace"))
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: u.Options.Get("context")}
	if len(u.Hosts) > 0 {
		overrides.ClusterInfo.Server = "https://" + u.Hosts[0]
	}
	file := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: u.Path}, overrides)
	api, err := file.ClientConfig()
	if err != nil {
		return Config{}, err
	}
	namespace := u.Options.Get("namespace")
	if namespace == "" {
		if namespace, _, err = file.Namespace(); err != nil {
			return Config{}, err
		}
	}
	return Config{REST: api, Namespace: namespace}, nil
}

// inPod is for who runs in the cluster.
func inPod(namespace string) (Config, error) {
	api, err := rest.InClusterConfig()
	if err != nil {
		return Config{}, fmt.Errorf("%w; outside of a cluster name a kubeconfig: %s", err, example)
	}
	if namespace == "" {
		text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return Config{}, fmt.Errorf("find the pod's namespace: %w", err)
		}
		namespace = strings.TrimSpace(string(text))
	}
	return Config{REST: api, Namespace: namespace}, nil
}

// check finds what asking again will not mend.
func (s *Store) check(ctx context.Context) error {
	ctx, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	text, err := ask(ctx, s.register.api, func(ctx context.Context) ([]byte, error) {
		return s.register.server.Get().AbsPath("/version").Do(ctx).Raw()
	})
	switch {
	case errors.Is(err, baton.ErrUnauthenticated):
		return err
	case err == nil:
		if err := checkVersion(text); err != nil {
			return err
		}
	}
	switch _, err := s.register.findPlace(ctx); {
	case baton.IsAnswer(err):
		return err
	case missing(err):
		return fmt.Errorf("there is no such namespace: %w", err)
	}
	return nil
}

// oldest is the first version in which all that is used here is stable: Leases
// since 1.14, bookmarks of watches since 1.17.
var oldest = [2]int{1, 17}

func checkVersion(text []byte) error {
	var v version.Info
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("read the API server's version: %w", err)
	}
	major, errMajor := strconv.Atoi(v.Major)
	minor, errMinor := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if errors.Join(errMajor, errMinor) != nil {
		return nil // somebody's own build
	}
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return fmt.Errorf("the API server is Kubernetes %s.%s: want %d.%d or later", v.Major, v.Minor, oldest[0], oldest[1])
	}
	return nil
}
