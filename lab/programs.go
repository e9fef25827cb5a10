package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are the commands of a fleet, as files.
type programs struct{ dir string }

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// findCheckout is the directory of this module's sources, at or above the
// working directory.
func findCheckout() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module baton\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the lab builds what it runs: start it inside the checkout of Baton, not in %s", wd)
		}
	}
}

// Build builds the programs that experiments run into dir, for Options.Programs.
func Build(ctx context.Context, dir string) error {
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator),
		"./cmd/baton", "./cmd/fenced", "./cmd/node", "./cmd/chaos")
	cmd.Dir = checkout
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("build the fleet's programs: %w\n%s", err, out), ctx.Err())
	}
	return nil
}
