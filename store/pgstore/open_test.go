package pgstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/pgstore"
	"baton/storetest/drill"
)

// with changes the URL of a server.
func with(t *testing.T, address string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	server := o.url
	o.exec(`CREATE ROLE ` + o.schema + `_guest LOGIN PASSWORD 'guest'`)
	o.exec(`CREATE DATABASE ` + o.schema + `_ro`)
	o.exec(`ALTER DATABASE ` + o.schema + `_ro SET default_transaction_read_only = on`)
	o.exec(`CREATE SCHEMA ` + o.schema + `_else CREATE TABLE store (shelf int)`)
	guest := func(u *url.URL) { u.User = url.UserPassword(o.schema+"_guest", "guest") }
	for what, tt := range map[string]struct {
		url  string
		kind error
		say  string
	}{
		"a wrong password":              {with(t, server, func(u *url.URL) { u.User = url.UserPassword("postgres", "guessed") }), baton.ErrUnauthenticated, "password authentication failed"},
		"no such database":              {with(t, server, func(u *url.URL) { u.Path = "/absent" }), baton.ErrInvalidArgument, `database "absent" does not exist`},
		"nobody there":                  {with(t, server, func(u *url.URL) { u.Host = nowhere(t) }), baton.ErrUnavailable, "connection refused"},
		"no right to create the schema": {fresh(with(t, server, guest)), baton.ErrNotAllowed, "permission denied"},
		"no right to use the schema":    {with(t, server, guest) + "&baton_schema=" + o.schema, baton.ErrNotAllowed, "permission denied"},
		"a server that takes no writes": {with(t, server, func(u *url.URL) { u.Path = "/" + o.schema + "_ro" }), baton.ErrUnavailable, "takes no writes"},
		"a schema of somebody else":     {server + "&baton_schema=" + o.schema + "_else", baton.ErrInvalidArgument, `column "version" does not exist`},
		"a bad schema":                  {server + "&baton_schema=Leases", baton.ErrInvalidArgument, "schema"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), drill.Patience)
		s, err := pgstore.Open(ctx, tt.url)
		cancel()
		if tt.kind != baton.ErrUnavailable && errors.Is(err, baton.ErrUnavailable) { // held up
			s, err = drill.Answered(t, pgstore.Open, tt.url)
		}
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, tt.kind) || !strings.Contains(fmt.Sprint(err), tt.say) || strings.Contains(fmt.Sprint(err), "guessed") {
			t.Errorf("%s: got %v, want %v that says %q", what, err, tt.kind, tt.say)
		}
		u, parsed := url.Parse(tt.url)
		if parsed != nil {
			t.Fatal(parsed)
		}
		if text := fmt.Sprint(err); strings.ContainsAny(text, "\n\t") || strings.Count(text, u.Hostname()) > 1 {
			t.Errorf("%s: %q has several lines, or the address twice", what, text)
		}
	}
	// Of several hosts the one that is there is used.
	s, err := drill.Answered(t, pgstore.Open, with(t, fresh(server), func(u *url.URL) { u.Host = nowhere(t) + "," + u.Host }))
	if err != nil {
		t.Fatalf("the second host is the one: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A server that is not who it should be is not waited for, either.
func TestOpenAtAServerWithAForeignCertificate(t *testing.T) {
	t.Parallel()
	known := httptest.NewTLSServer(nil)
	certificates := known.TLS.Certificates
	known.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// What Postgres says to a request for TLS.
			if _, err = io.ReadFull(conn, make([]byte, 8)); err == nil {
				if _, err = conn.Write([]byte("S")); err == nil {
					_ = tls.Server(conn, &tls.Config{Certificates: certificates}).HandshakeContext(t.Context())
				}
			}
			_ = conn.Close()
		}
	})
	defer serving.Wait()
	defer func() { _ = l.Close() }()
	_, err = pgstore.Open(t.Context(), "postgres://u@"+l.Addr().String()+"/db?sslmode=verify-full")
	if !errors.Is(err, baton.ErrUnauthenticated) || !strings.Contains(fmt.Sprint(err), "certificate") {
		t.Errorf("got %v, want ErrUnauthenticated", err)
	}
}

// A user without the right to create anything uses what an administrator made.
func TestSchemaInstalledByHand(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	name := o.schema + "_hand"
	sql, err := pgstore.Schema(name)
	if err != nil {
		t.Fatal(err)
	}
	o.exec(sql)
	o.exec(fmt.Sprintf(`CREATE ROLE %[1]s LOGIN PASSWORD 'pw';
		GRANT USAGE ON SCHEMA %[1]s TO %[1]s;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[1]s;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[1]s`, name))
	s := open(t, pgstore.Config{URL: with(t, o.url, func(u *url.URL) { u.User = url.UserPassword(name, "pw") }), Schema: name})
	l, err := s.Acquire(t.Context(), "g", candidate("a"), time.Minute)
	if err == nil {
		err = s.Release(t.Context(), l.ID())
	}
	if err == nil {
		err = s.Await(t.Context(), "g", candidate("b"))
	}
	if err == nil {
		_, err = s.PutGroup(t.Context(), baton.Group{ID: "g"})
	}
	if err == nil {
		err = s.DeleteGroup(t.Context(), "g")
	}
	if err != nil {
		t.Error(err)
	}
}

func TestManyOpenAFreshSchemaAtOnce(t *testing.T) {
	t.Parallel()
	cfg := pgstore.Config{
		URL: testserver.Shared(t, testserver.Postgres).Direct, Schema: fmt.Sprintf("test_%d", schemas.Add(1)), Timeout: drill.Unhurried,
	}
	var opening sync.WaitGroup
	for range 8 {
		opening.Go(func() {
			s, err := pgstore.New(t.Context(), cfg)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			_ = s.Close()
		})
	}
	opening.Wait()
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	o.exec(`UPDATE baton.store SET version = 2`)
	_, err := pgstore.New(t.Context(), o.config())
	if !errors.Is(err, baton.ErrConflict) || !strings.Contains(fmt.Sprint(err), "newer") {
		t.Errorf("got %v, want it refused", err)
	}
}

// A user that was given an empty schema, and no right to create others, installs the store in it.
func TestAnEmptySchemaIsEnough(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	name := o.schema + "_own"
	o.exec(`CREATE ROLE ` + name + ` LOGIN PASSWORD 'pw'`)
	o.exec(`CREATE SCHEMA ` + name + ` AUTHORIZATION ` + name)
	s := open(t, pgstore.Config{URL: with(t, o.url, func(u *url.URL) { u.User = url.UserPassword(name, "pw") }), Schema: name})
	if _, err := s.Acquire(t.Context(), "g", candidate("a"), time.Minute); err != nil {
		t.Error(err)
	}
}
