package testserver

import (
	"os"
	"slices"
	"testing"
)

// heavy kinds take many minutes to build on a new machine. The command in
// testservers/ keeps the same list.
var heavy = []Kind{Consul, Kubernetes}

// skipHeavy ends a test that wants a heavy server in a run that is not meant
// for such. `make test` is not, in CI too; `make test-heavy` is.
func skipHeavy(t testing.TB, kind Kind) {
	t.Helper()
	if slices.Contains(heavy, kind) && os.Getenv("BATON_TEST_HEAVY") != "true" {
		t.Skipf("%s takes minutes to build: its tests run where BATON_TEST_HEAVY=true, as in make test-heavy", kind)
	}
}
