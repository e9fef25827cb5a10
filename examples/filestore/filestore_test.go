//go:build unix

package filestore_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"baton"
	"baton/examples/filestore"
	"baton/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness(tb testing.TB) storetest.Harness {
	return storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		dir := tb.TempDir()
		return storetest.Backing{
			Open: func() baton.Store {
				s, err := filestore.Open(dir)
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				return s
			},
			Restart: func() {}, // it has no process: what is kept is on disk
		}
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t))
}

func TestConformanceBehindAFaultyNetwork(t *testing.T) {
	t.Parallel()
	storetest.RunFaulty(t, harness(t), 1)
}

// What the walk-through shows of this store, and of this test, is what they are.
func TestWalkThrough(t *testing.T) {
	text, err := os.ReadFile("../../docs/adding-a-store.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources string
	for _, name := range []string{"filestore.go", "filestore_test.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources += string(source)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("the walk-through shows no code")
	}
	for _, b := range blocks {
		for _, part := range strings.Split(b[1], "\n// ...\n") {
			if !strings.Contains(sources, strings.TrimRight(part, "\n")) {
				t.Errorf("this stands in the walk-through and not in the example:\n%s", part)
			}
		}
	}
}
