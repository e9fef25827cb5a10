package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const quickstart = "../../docs/quickstart.md"

// step is a block of commands, and what the page says that they print, if it does.
type step struct {
	commands string
	prints   string
	shown    bool
}

func steps(t *testing.T) []step {
	t.Helper()
	page, err := os.ReadFile(quickstart)
	if err != nil {
		t.Fatal(err)
	}
	var all []step
	for _, block := range regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		switch {
		case block[1] == "sh":
			all = append(all, step{commands: block[2]})
		case len(all) == 0:
			t.Fatalf("%s shows output before any command", quickstart)
		default:
			all[len(all)-1].prints, all[len(all)-1].shown = block[2], true
		}
	}
	return all
}

var (
	uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// greeting is what the server prints when it is ready, behind the back of the shell.
	greeting = regexp.MustCompile(`(?m)^baton serves .*\n`)
	number   = regexp.MustCompile(`("(?:term|lease_expires_at_ms|lease_remaining_ms|retry_after_ms)":)[0-9]+`)
)

// blur takes out what is different each time.
func blur(s string) string {
	s = greeting.ReplaceAllString(s, "")
	return strings.TrimSpace(number.ReplaceAllString(uuid.ReplaceAllString(s, "UUID"), "${1}N"))
}

// TestQuickstart types in the page, from top to bottom, into one shell.
func TestQuickstart(t *testing.T) {
	for _, port := range []string{"127.0.0.1:7400", "127.0.0.1:7402"} {
		eventually(t, "port "+port+" free, which the page uses", func() bool {
			l, err := net.Listen("tcp", port)
			if err != nil {
				return false
			}
			return l.Close() == nil
		})
	}
	const mark = "@@next@@"
	var script strings.Builder
	// Not on the page: a step that fails must not leave a server behind.
	script.WriteString("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	all := steps(t)
	if len(all) < 5 {
		t.Fatalf("%s has %d blocks of commands", quickstart, len(all))
	}
	for _, s := range all {
		// Not on the page: on a machine that stands still a server takes longer to be ready than requests wait for it.
		const lives, ready = ":7400/healthz\n", "until curl -sf http://127.0.0.1:7400/readyz > /dev/null; do sleep 0.1; done\n"
		script.WriteString(strings.ReplaceAll(s.commands, lives, lives+ready))
		script.WriteString("echo; echo " + mark + "\n")
	}
	bin := filepath.Join(t.TempDir(), "bin")
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", script.String())
	shell.Dir = "../.."
	shell.Env = cleanEnv("BATON_DATA="+filepath.Join(t.TempDir(), "baton-data"), "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"))
	shell.WaitDelay = 10 * time.Second
	var stderr strings.Builder
	shell.Stderr = &stderr
	out, err := shell.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
	}
	printed := strings.Split(string(out), mark+"\n")
	if len(printed) != len(all)+1 {
		t.Fatalf("%d of %d blocks ended:\n%s", len(printed)-1, len(all), out)
	}
	for i, s := range all {
		if got, want := blur(printed[i]), blur(s.prints); s.shown && got != want {
			t.Errorf("%s\nprinted\n%s\nand the page says\n%s", s.commands, got, want)
		}
	}
	text := string(out)
	for _, want := range []string{`{"status":"ok"}`, `"ok":true`, `"error":"NOT_LEADER"`, "node-2 leads payments", "RESIGNED", "s1 leads; as seen by s1 (leader); 1 leases"} {
		if !strings.Contains(text, want) {
			t.Errorf("nowhere does it print %s:\n%s", want, text)
		}
	}
}
