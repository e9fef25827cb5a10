package fleet

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestStoreAsEachNodeReachesIt(t *testing.T) {
	for _, tt := range []struct {
		store string
		via   []string
		want  string // or what the error says
	}{
		{"http://127.0.0.1:7400", nil, "http://127.0.0.1:7400"},
		{"http://127.0.0.1:7400", []string{"127.0.0.1:1"}, "http://127.0.0.1:1"},
		{"etcd://a:1,b:2,c:3", []string{"x:1", "y:2", "z:3"}, "etcd://x:1,y:2,z:3"},
		{"etcd://a:1,b:2/prefix", []string{"x:1", "y:2"}, "etcd://x:1,y:2/prefix"},
		{"postgres://me:a@b@h:5432/db?sslmode=disable", []string{"x:1"}, "postgres://me:a@b@x:1/db?sslmode=disable"},
		{"redis://[::1]:6379/0", []string{"[::1]:1"}, "redis://[::1]:1/0"},
		{"etcd://a:1,b:2", []string{"x:1"}, "via has 1 addresses, the store has 2"},
		{"etcd://a,b:2", []string{"x:1", "y:1"}, `"a" is not host:port`},
		{"a:1", []string{"x:1"}, "want a URL"},
		{"etcd://", []string{"x:1"}, "want a URL"},
		{"etcd://me@/x", []string{"x:1"}, "want a URL"},
	} {
		f := &File{Store: tt.store}
		got, err := f.StoreFor(Node{ID: "n1", Via: tt.via})
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s via %q: got %q, want %q", tt.store, tt.via, got, tt.want)
		}
	}
}

func TestFileIsChecked(t *testing.T) {
	const ok = `{"group":"g","backend":"baton","store":"http://h:1","resource":"http://r:1","proxy":"127.0.0.1:1",
		"nodes":[{"id":"n1","http":"127.0.0.1:2","pid_file":"n1.pid","via":["127.0.0.1:3"]},{"id":"n2","http":"127.0.0.1:4","pid":77}]}`
	for _, tt := range []struct{ old, new, want string }{
		{"", "", ""},
		{`"group":"g"`, `"group":"g g"`, "group"},
		{`"backend":"baton"`, `"backend":""`, "backend is not set"},
		{`"backend"`, `"bakend"`, `unknown field "bakend"`},
		{`"proxy":"127.0.0.1:1"`, `"proxy":"0.0.0.0:1"`, "an address of this machine alone"},
		{`"proxy":"127.0.0.1:1"`, `"proxy":"127.0.0.1"`, "an address of this machine alone"},
		{`"id":"n2"`, `"id":"n1"`, "twice"},
		{`127.0.0.1:4`, `127.0.0.1:2`, "twice"},
		{`127.0.0.1:4`, `127.0.0.1`, "want host:port"},
		{`"id":"n2"`, `"id":"../n2"`, "node id"},
		{`"via":["127.0.0.1:3"]`, `"via":["127.0.0.1:3","127.0.0.1:5"]`, "via has 2"},
		{`"backend":"baton"`, `"backend":"raft"`, "an address for each of the 2 nodes"},
		{`]}`, ``, "unexpected EOF"},
	} {
		path := filepath.Join(t.TempDir(), "fleet.json")
		if err := os.WriteFile(path, []byte(strings.Replace(ok, tt.old, tt.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s instead of %s: got %v, want %q", tt.new, tt.old, err, tt.want)
		}
	}
}

func TestProcessOfANode(t *testing.T) {
	dir := t.TempDir()
	f := &File{Group: "g", Backend: "baton", Nodes: []Node{
		{ID: "n1", HTTP: "127.0.0.1:1", PIDFile: "n1.pid"}, {ID: "n2", HTTP: "127.0.0.1:2", PID: 77}, {ID: "n3", HTTP: "127.0.0.1:3"},
	}}
	if err := f.Save(filepath.Join(dir, "fleet.json")); err != nil {
		t.Fatal(err)
	}
	f, err := Load(filepath.Join(dir, "fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.PIDOf(f.Nodes[0]); err == nil {
		t.Error("a process from a file that is not there")
	}
	if err := WritePIDFile(filepath.Join(dir, "n1.pid")); err != nil {
		t.Fatal(err)
	}
	if pid, err := f.PIDOf(f.Nodes[0]); pid != os.Getpid() || err != nil {
		t.Errorf("from the file: %d, %v", pid, err)
	}
	if pid, err := f.PIDOf(f.Nodes[1]); pid != 77 || err != nil {
		t.Errorf("as named: %d, %v", pid, err)
	}
	if pid, err := f.PIDOf(f.Nodes[2]); err == nil {
		t.Errorf("not named, and yet %d", pid)
	}
	// Signals to these would go to many, or to the first process there is.
	for _, pid := range []int{-1, 0, 1} {
		if err := os.WriteFile(filepath.Join(dir, "n1.pid"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := f.PIDOf(f.Nodes[0]); err == nil {
			t.Errorf("process %d was taken for a node", got)
		}
	}
}
