package consulstore_test

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/leak"
	"baton/internal/testserver"
	"baton/store/consulstore"
	"baton/storetest/drill"
)

// TestMain lets more tests run at once than there are processors: most of the
// time they wait for a lease to end, which takes Consul twenty seconds.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leak.Main(m)
}

// ttl is the shortest that there is. Consul lets it last for twice as long.
const ttl = 10 * time.Second

func host(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

var prefixes atomic.Int64

func freshPrefix() string { return fmt.Sprintf("test-%d", prefixes.Add(1)) }

func open(t testing.TB, cfg consulstore.Config) *consulstore.Store {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, drill.Unhurried)
	s, err := consulstore.New(t.Context(), cfg)
	return drill.Opened(t, s, err)
}

// raw is a client past the proxy, to look and to meddle.
func raw(t testing.TB, server *testserver.Server, token string) *api.Client {
	t.Helper()
	carrier := &http.Transport{}
	c, err := api.NewClient(&api.Config{
		Address: host(t, server.Direct), Token: token, HttpClient: &http.Client{Transport: carrier},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(carrier.CloseIdleConnections)
	return c
}

// one is a store on the server that all tests share, with a prefix of its own,
// and a client to meddle with what it keeps.
type one struct {
	*consulstore.Store
	server *testserver.Server
	consul *api.Client
	prefix string
}

func shared(t *testing.T) *one {
	t.Helper()
	server := testserver.Shared(t, testserver.Consul)
	prefix := freshPrefix()
	return &one{
		Store:  open(t, consulstore.Config{Address: host(t, server.URL), Prefix: prefix}),
		server: server, consul: raw(t, server, ""), prefix: prefix,
	}
}

// another is one more store on the same keys, as another process has it.
func (o *one) another(t *testing.T) *consulstore.Store {
	t.Helper()
	return open(t, consulstore.Config{Address: host(t, o.server.URL), Prefix: o.prefix})
}

// session is what has locked the record of a group, "" if nothing has.
func (o *one) session(t *testing.T, group string) string {
	t.Helper()
	pair, _, err := o.consul.KV().Get(o.prefix+"/leases/"+group, &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		t.Fatal(err)
	}
	if pair == nil {
		return ""
	}
	return pair.Session
}

// sessions are the names of those that Consul has for this group.
func (o *one) sessions(t *testing.T, group string) (names []string) {
	t.Helper()
	all, _, err := o.consul.Session().List(&api.QueryOptions{RequireConsistent: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if strings.HasSuffix(s.Name, " "+group) {
			names = append(names, s.Name)
		}
	}
	return names
}

func candidate(instance string) baton.Candidate {
	return baton.Candidate{NodeID: "node", InstanceID: instance}
}
