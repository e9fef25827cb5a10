// Package arch_test keeps the imports of this module pointing one way:
//
//	root <- store, fence, peer <- server <- cmd
//
// The rules are tables in rules_test.go.
package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = "../..", &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

func list(t *testing.T, pattern string) []pkg {
	t.Helper()
	out := json.NewDecoder(bytes.NewReader(goCommand(t, "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", pattern)))
	var pkgs []pkg
	for {
		var p pkg
		if err := out.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	pkgs := list(t, "./...")
	if len(pkgs) < 3 {
		t.Fatalf("go list told of %d packages only", len(pkgs))
	}
	for _, v := range violations(pkgs) {
		t.Error(v)
	}
}

// A program that imports one store links no other, nor the client of another;
// one that imports all has all. A store that is new is not forgotten.
func TestStoresAreLinkedOneByOne(t *testing.T) {
	var stores []pkg
	linked := map[string]bool{}
	for _, p := range list(t, "./store/...") {
		switch {
		case p.ImportPath == allStores:
			for _, imported := range p.Imports {
				linked[imported] = true
			}
		case part(p.ImportPath) == p.ImportPath:
			stores = append(stores, p)
		}
	}
	for _, p := range stores {
		if want := !slices.Contains(withoutURL, p.ImportPath); linked[p.ImportPath] != want {
			t.Errorf("%s imports %s: %t, want %t", allStores, p.ImportPath, !want, want)
		}
		for _, dep := range p.Deps {
			if part(dep) != p.ImportPath && strings.HasPrefix(dep, module+"/store/") {
				t.Errorf("%s links %s", p.ImportPath, dep)
			}
		}
		owned := 0
		for client, owners := range clients {
			if !slices.Contains(owners, p.ImportPath) {
				continue
			}
			if slices.ContainsFunc(p.Deps, func(dep string) bool { return under(dep, []string{client}) }) {
				owned++
			}
		}
		if owned == 0 && !slices.Contains(withoutClient, p.ImportPath) {
			t.Errorf("no rule names the client of %s, which no other store may link", p.ImportPath)
		}
	}
	if len(stores) < 5 {
		t.Errorf("go list told of %d stores only", len(stores))
	}
}

// The modules beside this one, for test servers and tools, are for
// those who work on it: whoever uses it must not be made to fetch what they need.
func TestNeighboursAreNotRequired(t *testing.T) {
	var mod struct {
		Require []struct{ Path string }
		Replace []struct{ Old struct{ Path string } }
		Tool    []struct{ Path string }
	}
	if err := json.Unmarshal(goCommand(t, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, r := range mod.Require {
		paths = append(paths, r.Path)
	}
	for _, r := range mod.Replace {
		paths = append(paths, r.Old.Path)
	}
	for _, tool := range mod.Tool {
		paths = append(paths, tool.Path)
	}
	for _, path := range paths {
		if area(path) != "" || under(path, []string{"github.com/golangci/golangci-lint"}) {
			t.Errorf("go.mod names %s, which the main module must do without", path)
		}
	}
}

// The checker is shown houses that are wrong in one way each.
func TestViolationsAreSeen(t *testing.T) {
	tests := []struct {
		name string
		pkg  pkg
		want string // "" if all is well
	}{
		{"root uses internal", pkg{ImportPath: "baton", Imports: []string{"time", "baton/internal/boottime"}}, ""},
		{"root uses a store", pkg{ImportPath: "baton", Imports: []string{"baton/store/memstore"}}, "the other way"},
		{"root drags a dependency in", pkg{ImportPath: "baton", Deps: []string{"time", "github.com/google/uuid"}}, "standard library only"},
		{"fence drags a dependency in", pkg{ImportPath: "baton/fence", Deps: []string{"github.com/jackc/pgx/v5"}}, "standard library only"},
		{"a ledger uses its client", pkg{ImportPath: "baton/fence/pgfence", Imports: []string{"baton/fence"}, Deps: []string{"github.com/jackc/pgx/v5/pgconn"}}, ""},
		{"internal reaches up", pkg{ImportPath: "baton/internal/line", Imports: []string{"baton/server"}}, "the other way"},
		{"a store uses another", pkg{ImportPath: "baton/store/pgstore", Imports: []string{"baton/store/memstore"}}, "the other way"},
		{"a store uses its own part", pkg{ImportPath: "baton/store/raftstore", Imports: []string{"baton/store/raftstore/wire"}}, ""},
		{"a store uses the server", pkg{ImportPath: "baton/store/remotestore", Imports: []string{"baton/server"}}, "the other way"},
		{"a store drags another's client in", pkg{ImportPath: "baton/store/memstore", Deps: []string{"github.com/redis/go-redis/v9"}}, "which only"},
		{"a test uses another store", pkg{ImportPath: "baton/store/remotestore", XTestImports: []string{"baton/store/memstore", "baton/server"}}, ""},
		{"the suite in a test", pkg{ImportPath: "baton/store/memstore", TestImports: []string{"baton/storetest"}}, ""},
		{"the suite in what ships", pkg{ImportPath: "baton/cmd/baton", Imports: []string{"baton/storetest/history"}}, "only tests may"},
		{"one suite in another", pkg{ImportPath: "baton/storetest", Imports: []string{"baton/storetest/history"}}, ""},
		{"test servers in what ships", pkg{ImportPath: "baton/server", Imports: []string{"baton/internal/testserver"}}, "only tests may"},
		{"server uses a store", pkg{ImportPath: "baton/server/httpapi", Imports: []string{"baton/store/memstore", "baton/api"}}, ""},
		{"server uses a program", pkg{ImportPath: "baton/server", Imports: []string{"baton/cmd/baton"}}, "the other way"},
		{"a program's inside uses the server", pkg{ImportPath: "baton/internal/cli", Imports: []string{"baton/server", "baton/store/memstore"}}, ""},
		{"server uses a program's inside", pkg{ImportPath: "baton/server", Imports: []string{"baton/internal/cli"}}, "the other way"},
		{"the protected resource uses ledgers", pkg{ImportPath: "baton/fenced", Imports: []string{"baton/fence/pgfence"}, Deps: []string{"github.com/jackc/pgx/v5"}}, ""},
		{"the protected resource uses a store", pkg{ImportPath: "baton/fenced", Imports: []string{"baton/store/memstore"}}, "the other way"},
		{"a program uses the lab", pkg{ImportPath: "baton/cmd/node", Imports: []string{"baton/lab/pause"}}, "imports the lab"},
		{"the lab's program uses the lab", pkg{ImportPath: "baton/cmd/lab", Imports: []string{"baton/lab/pause"}}, ""},
		{"an experiment uses the lab", pkg{ImportPath: "baton/lab/pause", Imports: []string{"baton/lab", "baton/internal/fleet"}}, ""},
		{"a test uses the lab", pkg{ImportPath: "baton/server", TestImports: []string{"baton/lab"}}, "imports the lab"},
		{"a part that nobody has thought of", pkg{ImportPath: "baton/misc"}, "no rule"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations([]pkg{tt.pkg})
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want none", got)
			case tt.want != "" && !slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, tt.want) }):
				t.Errorf("got %q, want one that says %q", got, tt.want)
			}
		})
	}
}
