package fenced_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"baton"
	"baton/fenced"
	"baton/fenced/fencedclient"
	"baton/internal/leak"
	"baton/internal/testserver"
)

// The test binary is the program, too, when it is told so.
const asProgram = "BATON_TEST_AS_FENCED"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		status := fenced.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(status)
	}
	leak.Main(m)
}

// process is the program running.
type process struct {
	t      testing.TB
	args   []string
	url    string
	client *fencedclient.Client
	http   *http.Client

	cmd    *exec.Cmd
	stderr *lines
}

// lines collects what a process says.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// start runs the program on a free port, and ends it with the test.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 64
	p := &process{t: t, args: args, http: &http.Client{Transport: base}}
	t.Cleanup(base.CloseIdleConnections)
	p.run("127.0.0.1:0")
	t.Cleanup(p.kill)
	var err error
	if p.client, err = fencedclient.New(p.url, p.http); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) run(listen string) {
	p.t.Helper()
	p.cmd, p.stderr = command(append([]string{"-listen", listen}, p.args...)...), new(lines)
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.t.Fatalf("the program did not start: %v\n%s", p.cmd.Wait(), p.stderr)
	}
	p.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// kill ends the process without a chance to say anything.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// restart starts it again, at the same address.
func (p *process) restart() {
	p.t.Helper()
	u, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.run(u.Host)
}

// says waits until the program has said it, on stderr.
func (p *process) says(what string) {
	p.t.Helper()
	eventually(p.t, "the log to say "+what, func() error {
		if said := p.stderr.String(); !strings.Contains(said, what) {
			return errors.New(said)
		}
		return nil
	})
}

func (p *process) metric(name string) string {
	p.t.Helper()
	resp, err := p.http.Get(p.url + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	p.t.Fatalf("there is no metric %s", name)
	return ""
}

// eachDatabase runs a test on SQLite and on Postgres; open makes a new database.
func eachDatabase(t *testing.T, test func(t *testing.T, open func(t testing.TB) string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, sqliteFile) })
	t.Run("postgres", func(t *testing.T) { test(t, postgresSchema) })
}

// sqliteFile has a name that needs care.
func sqliteFile(t testing.TB) string { return filepath.Join(t.TempDir(), "fenced? a#b%20.db") }

var schemas atomic.Int64

func postgresSchema(t testing.TB) string {
	t.Helper()
	return newSchema(t, testserver.Shared(t, testserver.Postgres).URL)
}

// newSchema returns the URL of a new schema in the server's database.
func newSchema(t testing.TB, server string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	schema := fmt.Sprintf("fenced_%d", schemas.Add(1))
	if _, err := conn.Exec(t.Context(), "create schema "+schema); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func token(term baton.Term, instance string) baton.Token {
	return baton.Token{Group: "payments", Term: term, InstanceID: instance}
}

// lead returns a leadership for an hour.
func lead(t testing.TB, tok baton.Token) *baton.Leadership {
	clock := baton.SystemClock()
	l, tenure := baton.NewLeadership(baton.LeadershipConfig{Token: tok, Clock: clock, Until: clock.Now() + time.Hour})
	t.Cleanup(func() { tenure.End(baton.ErrResigned) })
	return l
}

// eventually tries until it works, for far longer than it should take.
func eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		<-tick.C
	}
}
