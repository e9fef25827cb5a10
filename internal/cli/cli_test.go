package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"baton"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("anything"), exitFailure},
		{usagef("bad"), exitUsage},
		{&baton.InvalidArgumentError{}, exitUsage},
		{&baton.InvalidTTLError{}, exitUsage},
		{baton.ErrTooLarge, exitUsage},
		{&baton.NotLeaderError{}, exitNotLeader},
		{baton.ErrNotFound, exitNotFound},
		{&baton.UnavailableError{}, exitUnavailable},
		{baton.ErrRateLimited, exitUnavailable},
		{&baton.ConflictError{}, exitConflict},
		{&baton.HeldError{}, exitConflict},
		{&baton.DuplicateNodeError{}, exitConflict},
		{baton.ErrNotAllowed, exitDenied},
		{baton.ErrUnauthenticated, exitDenied},
		{context.Canceled, exitInterrupted},
		{&quietError{code: exitNotLeader}, exitNotLeader},
	} {
		for _, err := range []error{c.err, wrapped(c.err)} {
			if got := exitCode(err); got != c.want {
				t.Errorf("%v: exit code %d, want %d", err, got, c.want)
			}
		}
	}
	for _, kind := range baton.ErrorKinds() {
		if exitCode(kind.Err) <= exitFailure {
			t.Errorf("%v has no exit code of its own", kind.Err)
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("while doing something: %w", err)
}

// Every flag of every command tells its variable, and no two flags of one command share one.
func TestEveryFlagHasAVariable(t *testing.T) {
	a := &app{Program: Program{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		seen := map[string]string{}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !hasEnv(f) {
				return
			}
			if !strings.Contains(f.Usage, "[$"+envName(f.Name)+"]") {
				t.Errorf("%s --%s does not tell its variable: %s", c.CommandPath(), f.Name, f.Usage)
			}
			if other, ok := seen[envName(f.Name)]; ok {
				t.Errorf("%s: --%s and --%s share a variable", c.CommandPath(), f.Name, other)
			}
			seen[envName(f.Name)] = f.Name
		})
		if c.Runnable() && c.Short == "" {
			t.Errorf("%s says nothing about itself", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
}

// A command writes where it is told, and nowhere else.
func TestProgramUsesItsWriters(t *testing.T) {
	var stdout, stderr bytes.Buffer
	p := Program{Stdout: &stdout, Stderr: &stderr}
	if code := p.Main(t.Context(), []string{"version"}); code != exitOK || !strings.HasPrefix(stdout.String(), "baton ") {
		t.Errorf("version: exit code %d, %q", code, stdout.String())
	}
	if code := p.Main(t.Context(), []string{"leader"}); code != exitUsage || !strings.HasPrefix(stderr.String(), "baton: ") {
		t.Errorf("leader of nothing: exit code %d, %q", code, stderr.String())
	}
}

func TestCheckAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:7400": true,
		"127.9.9.9:0":    true,
		"[::1]:7400":     true,
		"localhost:7400": true,
		":7400":          false,
		"0.0.0.0:7400":   false,
		"[::]:7400":      false,
		"192.0.2.1:7400": false,
		"7400":           false,
		"":               false,
	} {
		err := checkAddress(t.Context(), "--http", address, false)
		if (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
		if err != nil && exitCode(err) != exitUsage {
			t.Errorf("%q: exit code %d", address, exitCode(err))
		}
	}
	if err := checkAddress(t.Context(), "--http", ":7400", true); err != nil {
		t.Errorf("insecure: %v", err)
	}
}

// What every store of a kind has is told; what this one has besides is warned of.
func TestCaveatsAreWarningsOnlyIfUnusual(t *testing.T) {
	all, err := allStores()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		g := baton.Guarantees{Store: s.Store, Caveats: append(slices.Clone(s.Caveats), "fsync is off")}
		logCaveats(t.Context(), log, g)
		said := out.String()
		if strings.Count(said, "level=INFO") != len(s.Caveats) || strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, `level=WARN msg="fsync is off"`) {
			t.Errorf("%s: %s", s.Store, said)
		}
	}
}
