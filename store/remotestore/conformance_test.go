package remotestore_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"baton"
	"baton/internal/leak"
	"baton/server"
	"baton/server/httpapi"
	"baton/store/memstore"
	"baton/store/remotestore"
	"baton/storetest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newMemory is a store that ends with the test.
func newMemory(t storetest.T) baton.Store {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatalf("new memory store: %v", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the memory store: %v", err)
		}
	})
	return store
}

// newHandler is the API over store, which ends with the test.
func newHandler(t storetest.T, store baton.Store) *httpapi.Handler {
	t.Helper()
	service, err := server.New(store, server.Config{
		DefaultPolicy: baton.Policy{MinTTL: store.Guarantees().MinTTL, MaxTTL: store.Guarantees().MaxTTL},
		Logger:        quiet(),
	})
	if err != nil {
		t.Fatalf("new service: %v", err)
	}
	t.Cleanup(service.Close)
	return httpapi.New(service, httpapi.Config{Logger: quiet()})
}

// serve puts a handler on a port of its own.
func serve(t storetest.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// dial opens a store on these servers, which the caller closes.
func dial(t storetest.T, servers ...string) *remotestore.Store {
	t.Helper()
	s, err := remotestore.New(t.Context(), remotestore.Config{Servers: servers, Timeout: patience, Logger: quiet()})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return s
}

// One server on one memory store.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		s := serve(t, newHandler(t, newMemory(t)))
		return storetest.Backing{Open: func() baton.Store { return dial(t, s.URL) }}
	}})
}

// Two servers on one store, and every handle prefers another one: what one
// server acknowledges holds at the other.
func TestConformanceOverTwoServers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		store := newMemory(t)
		a, b := serve(t, newHandler(t, store)), serve(t, newHandler(t, store))
		handles := 0
		return storetest.Backing{Open: func() baton.Store {
			if handles++; handles%2 == 0 {
				return dial(t, b.URL, a.URL)
			}
			return dial(t, a.URL, b.URL)
		}}
	}})
}
