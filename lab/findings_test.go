package lab_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"baton/lab"
	"baton/lab/all"
)

// The numbers and figures in docs/findings.md are what lab report makes of the results in docs/results.
func TestFindingsAreOfTheResults(t *testing.T) {
	docs, copied := filepath.Join("..", "docs"), t.TempDir()
	results := filepath.Join(copied, "results")
	if err := os.CopyFS(results, os.DirFS(filepath.Join(docs, "results"))); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(copied, "findings.md")
	if err := os.WriteFile(page, read(t, filepath.Join(docs, "findings.md")), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	const checkFailed = 3 // of some backend, which is a finding, too
	if status := lab.Main(context.Background(), all.Experiments, []string{"report", "--out", results, "--findings", page}, &stdout, &stderr); status != 0 && status != checkFailed {
		t.Fatalf("lab report ends with %d: %s", status, stderr.String())
	}
	paths, err := filepath.Glob(filepath.Join(copied, "figures", "*.svg"))
	if err != nil || len(paths) < 5 {
		t.Errorf("%d figures, %v", len(paths), err)
	}
	for _, path := range append(paths, page) {
		name, err := filepath.Rel(copied, path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, path), read(t, filepath.Join(docs, name))) {
			t.Errorf("docs/%s is not of these results: go run ./cmd/lab report --out docs/results --findings docs/findings.md", name)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
