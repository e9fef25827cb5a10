package baton_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The argument for safety names the tests that attack it. They exist.
func TestSafetyArgumentNamesRealTests(t *testing.T) {
	text, err := os.ReadFile("docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 20 {
		t.Fatalf("docs/safety.md names %d tests: is this the right file?", len(named))
	}
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declaration.FindAllStringSubmatch(string(source), -1) {
			declared[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range named {
		if !declared[m[1]] {
			t.Errorf("docs/safety.md relies on %s, which does not exist", m[1])
		}
	}
}
