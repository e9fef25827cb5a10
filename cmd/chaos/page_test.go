package main_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"baton/internal/testprocess"
)

const page = "../../docs/fleet.md"

// The page that walks a stranger through a fleet is typed in, from top to bottom,
// into one shell: its three terminals share what the test looks at.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	// Not on the page: nothing is left behind by a step that fails.
	script := "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		// The programs are built already, from the same source.
		script += strings.Replace(block[1], "go install ./cmd/baton ./cmd/fenced ./cmd/node ./cmd/chaos\n", "", 1)
	}
	script += "wait\n"
	if len(blocks) < 8 || strings.Contains(script, "go install") {
		t.Fatalf("%s has other commands than this test knows", page)
	}
	// Its leases are short, as a page is to be read at once: where the machine stands still for
	// longer than one, another leads than the page expects. The work is right each time.
	var wrong string
	for range enough {
		for _, address := range regexp.MustCompile(`127\.0\.0\.1:7[0-9]{3}`).FindAllString(string(text), -1) {
			eventually(t, address+" is free, which the page uses", func() bool {
				l, err := net.Listen("tcp", address)
				return err == nil && l.Close() == nil
			})
		}
		if wrong = typed(t, script); wrong == "" {
			return
		}
		t.Log(wrong)
	}
	t.Errorf("%d times something is wrong; the last time:\n%s", enough, wrong)
}

// typed types the page in, and says what is wrong with what it prints.
func typed(t *testing.T, script string) (wrong string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", script)
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "HOME="+shell.Dir, "PATH="+testprocess.Dir+":"+os.Getenv("PATH"))
	shell.WaitDelay = 10 * time.Second
	var stderr strings.Builder
	shell.Stderr = &stderr
	out, err := shell.Output()
	if strings.Contains(string(out), `{"ok":false`) {
		t.Fatalf("the work was not right:\n%s", out)
	}
	if err != nil {
		return fmt.Sprintf("%v\n%s\n%s", err, out, &stderr)
	}
	for _, want := range []string{
		`"error":"NOT_LEADER"`, `"seq":1}`,
		"stopped for 3.5s", "cut off from its backend for 5s", "kill -9", "asked to hand over",
		"does not lead any more: candidate", "does not lead any more: gone", "no answer", `{"ok":true,"writes":`,
	} {
		if !strings.Contains(string(out), want) {
			return fmt.Sprintf("nowhere does it print %s:\n%s", want, out)
		}
	}
	if changes := strings.Count(string(out), "leads, with token"); changes != 4 {
		return fmt.Sprintf("%d new leaders were told of, want 4:\n%s", changes, out)
	}
	return ""
}
