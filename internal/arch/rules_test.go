package arch_test

import (
	"fmt"
	"slices"
	"strings"
)

// module is the path of the main module, and of its root package.
const module = "baton"

// pkg is what go list tells about a package of the main module.
type pkg struct {
	ImportPath                string
	Imports                   []string // by what ships
	TestImports, XTestImports []string
	Deps                      []string // all that what ships pulls in
}

// programs are the insides of commands. They are below internal so that they
// can be tested and nobody else's, and count as part of cmd. So does the package
// that links all stores, which is for programs alone.
var programs = []string{"baton/internal/cli", "baton/internal/fleet", allStores}

// allStores imports every store that is opened by a URL.
const allStores = "baton/store/all"

// withoutURL are the stores that are not, withoutClient those that need no
// module but this one.
var (
	withoutURL    = []string{"baton/store/memstore", "baton/store/raftstore"}
	withoutClient = []string{"baton/store/memstore", "baton/store/remotestore"}
)

// area is the part of the house a package belongs to: the first element of its
// path below the module, "." for the root package, "" for other modules' packages.
func area(path string) string {
	if path == module {
		return "."
	}
	if under(path, programs) {
		return "cmd"
	}
	rest, ours := strings.CutPrefix(path, module+"/")
	if !ours {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return first
}

// mayImport lists, for each area, the areas whose packages it may import; its
// own among them where its packages may import each other. The programs, in
// cmd, lab and examples, may import anything but what the other rules forbid.
var mayImport = map[string][]string{
	".":         {"internal"},
	"internal":  {".", "internal"},
	"api":       {".", "internal", "api"},
	"store":     {".", "internal", "api"},
	"fence":     {".", "internal", "fence"},
	"peer":      {".", "internal"},
	"storetest": {".", "internal", "storetest"},
	"web":       {},
	"server":    {".", "internal", "api", "store", "fence", "peer", "web", "server"},
	"fenced":    {".", "internal", "api", "fence", "fenced"},
	"cmd":       nil,
	"lab":       nil,
	"examples":  nil,
}

// wiring are the areas that may pull in the clients of all that they are built with.
var wiring = []string{"server", "fenced", "cmd", "lab", "examples"}

// onlyForTests are packages, with all below them, that only tests and each
// other import.
var onlyForTests = []string{"baton/storetest", "baton/fence/fencetest", "baton/internal/testserver", "baton/internal/testprocess", "baton/internal/raftnode/raftsim"}

// standardOnly are packages that pull in nothing but the standard library and
// packages of this module.
var standardOnly = []string{"baton", "baton/fence", "baton/api", "baton/internal/testserver", "baton/internal/storecall", "baton/internal/bound"}

// clients are modules that talk to one kind of server, by the start of their
// path, and the only packages below storage, fencing and peers that may pull
// them in. Who uses one store does not compile the clients of all.
var clients = map[string][]string{
	"github.com/hashicorp/raft":       {"baton/store/raftstore", "baton/peer/raftpeer", "baton/internal/raftnode"},
	"github.com/hashicorp/consul":     {"baton/store/consulstore"},
	"github.com/hashicorp/memberlist": {"baton/peer"},
	"go.etcd.io/etcd":                 {"baton/store/etcdstore"},
	"github.com/redis/go-redis":       {"baton/store/redisstore", "baton/fence/redisfence"},
	"github.com/jackc/pgx":            {"baton/store/pgstore", "baton/fence/pgfence"},
	"github.com/lib/pq":               {},
	"modernc.org/sqlite":              {"baton/fence/sqlitefence"},
	"github.com/mattn/go-sqlite3":     {"baton/fence/sqlitefence"},
	"github.com/go-zookeeper/zk":      {"baton/store/zkstore"},
	"k8s.io":                          {"baton/store/kubestore"},
	"google.golang.org/grpc":          {"baton/store/remotestore", "baton/store/etcdstore"},
}

// under reports whether path is one of the roots or below one.
func under(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

// part is the directory right below the area: the store, the ledger.
func part(path string) string {
	elements := strings.SplitN(path, "/", 4)
	return strings.Join(elements[:min(3, len(elements))], "/")
}

// violations lists what is wrong with the imports of these packages.
func violations(pkgs []pkg) []string {
	var found []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, p := range pkgs {
		from := area(p.ImportPath)
		allowed, known := mayImport[from]
		if !known {
			say("%s: no rule says what %s/ may import", p.ImportPath, from)
			continue
		}
		for _, imported := range p.Imports {
			to := area(imported)
			if to == "" {
				continue
			}
			switch {
			case under(imported, onlyForTests):
				if !under(p.ImportPath, onlyForTests) {
					say("%s imports %s, which only tests may", p.ImportPath, imported)
				}
			case part(imported) == part(p.ImportPath):
				// a package of the same part
			case to == "lab":
				if from != "lab" && p.ImportPath != "baton/cmd/lab" {
					say("%s imports %s: nothing but its command imports the lab", p.ImportPath, imported)
				}
			case allowed != nil && !slices.Contains(allowed, to):
				say("%s imports %s: the arrows point the other way", p.ImportPath, imported)
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if area(imported) == "lab" && from != "lab" && p.ImportPath != "baton/cmd/lab" {
				say("%s imports %s in a test: nothing but its command imports the lab", p.ImportPath, imported)
			}
		}
		found = append(found, foreign(p, slices.Contains(wiring, from))...)
	}
	return found
}

// foreign lists what a package wrongly pulls in from other modules.
func foreign(p pkg, anyClient bool) []string {
	var found []string
	reported := map[string]bool{}
	for _, dep := range p.Deps {
		first, _, _ := strings.Cut(dep, "/")
		if !strings.Contains(first, ".") {
			continue // ours, or the standard library's: no domain's
		}
		if slices.Contains(standardOnly, p.ImportPath) {
			found = append(found, fmt.Sprintf("%s pulls in %s: it may use the standard library only", p.ImportPath, dep))
			continue
		}
		for client, owners := range clients {
			if under(dep, []string{client}) && !anyClient && !under(p.ImportPath, owners) && !reported[client] {
				reported[client] = true
				found = append(found, fmt.Sprintf("%s pulls in %s, which only %v may", p.ImportPath, client, owners))
			}
		}
	}
	return found
}
