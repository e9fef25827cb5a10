package testserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"baton/internal/leak"
	"baton/internal/testserver"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Each server is asked what any of its kind answers to anyone.
var greetings = map[testserver.Kind]struct {
	say  string
	hear byte
}{
	testserver.Postgres:   {"\x00\x00\x00\x08\x04\xd2\x16\x2f", 'N'}, // may we speak TLS? no
	testserver.Redis:      {"PING\r\n", '-'},                         // not without a password
	testserver.Consul:     {"GET /v1/status/leader HTTP/1.0\r\n\r\n", 'H'},
	testserver.Kubernetes: {"GET / HTTP/1.0\r\n\r\n", 'H'},        // a server of HTTPS says so in HTTP
	testserver.Etcd:       {"GET /version HTTP/1.0\r\n\r\n", 'H'}, // HTTP/1.0 200 OK
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp4", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask greets the server over a connection of its own.
func ask(t *testing.T, kind testserver.Kind, address string) {
	t.Helper()
	conn := dial(t, address)
	if _, err := conn.Write([]byte(greetings[kind].say)); err != nil {
		t.Fatal(err)
	}
	hear(t, kind, conn)
}

func hear(t *testing.T, kind testserver.Kind, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if b, err := bufio.NewReader(conn).ReadByte(); err != nil || b != greetings[kind].hear {
		t.Fatalf("%s answered %q, %v; want %q", kind, b, err, greetings[kind].hear)
	}
}

// askInVain greets the server and returns the connection, on which nothing
// has come back for a while.
func askInVain(t *testing.T, kind testserver.Kind, address string) net.Conn {
	t.Helper()
	conn := dial(t, address)
	if _, err := conn.Write([]byte(greetings[kind].say)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%s was to be silent: read ended with %v", kind, err)
	}
	return conn
}

func TestFaults(t *testing.T) {
	for kind := range greetings {
		t.Run(string(kind), func(t *testing.T) {
			s := testserver.Start(t, kind)
			ask(t, kind, s.URL)
			ask(t, kind, s.Direct)

			s.Pause(t)
			waiting := askInVain(t, kind, s.Direct)
			s.Resume(t)
			hear(t, kind, waiting)

			for _, d := range []testserver.Direction{testserver.ToServer, testserver.ToClient, testserver.BothWays} {
				s.Cut(t, d)
				waiting := askInVain(t, kind, s.URL)
				ask(t, kind, s.Direct)
				s.Heal(t)
				hear(t, kind, waiting)
			}

			s.Refuse(t)
			u, err := url.Parse(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			if conn, err := net.Dial("tcp4", u.Host); err == nil {
				_ = conn.Close()
				t.Fatal("a connection was made that was to be refused")
			}
			ask(t, kind, s.Direct)
			s.Heal(t)
			ask(t, kind, s.URL)

			s.Kill(t)
			if u, err = url.Parse(s.Direct); err != nil {
				t.Fatal(err)
			}
			if conn, err := net.Dial("tcp4", u.Host); err == nil {
				_ = conn.Close()
				t.Fatal("a killed server took a connection")
			}
			s.Restart(t)
			ask(t, kind, s.URL)
		})
	}
}

func TestSharedIsOne(t *testing.T) {
	a := testserver.Shared(t, testserver.Redis)
	b := testserver.Shared(t, testserver.Redis)
	if a != b {
		t.Errorf("two shared servers: %s and %s", a.URL, b.URL)
	}
	ask(t, testserver.Redis, a.URL)
}

// recorder is a test that notes how it would have ended.
type recorder struct {
	testing.TB
	failed, skipped string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}
func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	panic(r)
}

// A server that cannot be started because of what the test asks for is a
// failure everywhere: it must not look like one that is not installed.
func TestBrokenServerIsNotSkipped(t *testing.T) {
	testserver.Shared(t, testserver.Redis) // it is installed
	t.Setenv("CI", "")
	r := &recorder{TB: t}
	func() {
		defer func() { _ = recover() }()
		testserver.Start(r, testserver.Redis, testserver.Setting("appendfsync", "sometimes"))
	}()
	if !strings.Contains(r.failed, "appendfsync") {
		t.Errorf("got skip %q and failure %q, want a failure that shows the server's log", r.skipped, r.failed)
	}
}

// What is too heavy for a run is left out by the run, not for want of a server.
func TestHeavyServersAreLeftOut(t *testing.T) {
	t.Setenv("CI", "true")
	t.Setenv("BATON_TEST_HEAVY", "")
	for what, ask := range map[string]func(testing.TB){
		"started": func(t testing.TB) { testserver.Start(t, testserver.Consul) },
		"shared":  func(t testing.TB) { testserver.Shared(t, testserver.Consul) },
	} {
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			ask(r)
		}()
		if !strings.Contains(r.skipped, "BATON_TEST_HEAVY") {
			t.Errorf("%s: got skip %q and failure %q, want a skip that names BATON_TEST_HEAVY", what, r.skipped, r.failed)
		}
	}
}

// Members of a cluster fail one by one: two of three go on without the third.
func TestEtcdCluster(t *testing.T) {
	members := testserver.StartEtcd(t, 3)
	health := func(m *testserver.Server) (answer []byte, err error) {
		t.Helper()
		conn := dial(t, m.URL)
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET /health HTTP/1.0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		return io.ReadAll(conn)
	}
	healthy := func(m *testserver.Server) {
		t.Helper()
		// They elect another leader when the machine stands still.
		for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			answer, err := health(m)
			if err == nil && strings.Contains(string(answer), `"health":"true"`) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s answered %q, %v", m.URL, answer, err)
			}
		}
	}
	members[0].Kill(t)
	members[0].Restart(t) // which returns when it reads with the others
	for _, m := range members {
		healthy(m)
	}
}

// An address is free while nobody uses it, so it must not be given to two.
func TestFreeAddress(t *testing.T) {
	given := map[string]bool{}
	for range 400 { // of 15000 ports: drawn blindly, some would be drawn twice
		address := testserver.FreeAddress(t)
		if given[address] {
			t.Fatalf("%s was given to two", address)
		}
		given[address] = true
	}
}
