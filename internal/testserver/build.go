package testserver

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// build makes the command, unless the same sources were built before, and
// returns its path. It is kept in the user's cache, out of the checkout.
var build = sync.OnceValues(func() (string, error) {
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the testservers command: %w", err)
	}
	hash, err := hashSources(source)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "baton", "testservers", hash)
	program := filepath.Join(dir, "testservers")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Several tests may build at once; each puts a whole program in place.
	fresh, err := os.CreateTemp(dir, "building-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(fresh.Name()) }()
	if err := fresh.Close(); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", fresh.Name(), ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return program, os.Rename(fresh.Name(), program)
})

// sourceDir finds testservers/ from the directory of the package under test.
func sourceDir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		source := filepath.Join(dir, "testservers")
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no testservers/ in any directory above %s", wd)
		}
	}
}

// hashSources tells one state of the command from another.
func hashSources(dir string) (string, error) {
	hash := sha256.New()
	_, _ = fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, "go.") && (!strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go")) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8]), nil
}
