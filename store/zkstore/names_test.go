package zkstore

import (
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/observed"
)

// ZooKeeper's numbers go on below zero after 2147483647.
func TestPlacesAreInOrderAcrossTheOverflow(t *testing.T) {
	var places []place
	for _, name := range []string{"d~i~-2147483647", "b~i~2147483647", "c~i~-2147483648", "a~i~2147483646"} {
		p, ok := parsePlace(name)
		if !ok {
			t.Fatalf("%s is no place", name)
		}
		places = append(places, p)
	}
	order(places)
	var nodes []string
	for _, p := range places {
		nodes = append(nodes, p.node)
	}
	if !slices.Equal(nodes, []string{"a", "b", "c", "d"}) {
		t.Errorf("the line is %v", nodes)
	}
	for _, name := range []string{"", "a~i", "a~i~", "a~i~x", "a~i~0~0", "a~i~99999999999"} {
		if p, ok := parsePlace(name); ok {
			t.Errorf("%q is taken for the place %+v", name, p)
		}
	}
}

func TestWhoGoesFirst(t *testing.T) {
	line := []place{{node: "a", instance: "1"}, {node: "b", instance: "1"}}
	for _, c := range []struct {
		places          []place
		successor, node string
		want            bool
	}{
		{nil, "", "x", true},
		{line, "", "a", true},
		{line, "", "b", false},
		{line, "", "x", false},
		{line, "b", "b", true},
		{line, "b", "a", false},
		{line, "gone", "a", true},
	} {
		if got := first(c.places, c.successor, baton.Candidate{NodeID: c.node, InstanceID: "1"}); got != c.want {
			t.Errorf("%s goes first of %v with successor %q: %t", c.node, c.places, c.successor, got)
		}
	}
}

// A record whose version comes near the end of what ZooKeeper can count is made anew by the next grant, and a
// renewal never is: -1 would name any version.
func TestWornRecordIsMadeAnew(t *testing.T) {
	r := register{&client{prefix: "/p"}}
	vacant := observed.Record{Term: 7}
	granted := observed.Record{Term: 8, Holder: &observed.Holder{Term: 8}}
	ops, v, err := r.replace("g", versions{counter: 3, record: worn}, vacant, granted)
	if err != nil || len(ops) != 3 || v != (versions{counter: 4, record: 0}) {
		t.Fatalf("a grant over a worn record is %d operations, then %+v, %v", len(ops), v, err)
	}
	if d, ok := ops[1].(*zk.DeleteRequest); !ok || d.Version != worn {
		t.Errorf("the second operation is %+v: want the deletion of exactly this version", ops[1])
	}
	if ops, v, _ = r.replace("g", versions{counter: 3, record: worn}, granted, granted); len(ops) != 2 || v.record != worn+1 {
		t.Errorf("a renewal is %d operations, then %+v", len(ops), v)
	}
}

func TestEveryWriteNamesWhatItReplaces(t *testing.T) {
	r := register{&client{prefix: "/p"}}
	vacant := observed.Record{Term: 7}
	granted := observed.Record{Term: 8, Holder: &observed.Holder{Term: 8}}
	for _, c := range []struct {
		what      string
		v         versions
		old, next observed.Record
		want      versions
	}{
		{"the first grant", versions{absent, absent}, observed.Record{}, granted, versions{0, 0}},
		{"a grant after a deletion", versions{5, absent}, vacant, granted, versions{6, 0}},
		{"a grant", versions{5, 9}, vacant, granted, versions{6, 10}},
		{"a renewal", versions{5, 9}, granted, granted, versions{5, 10}},
		{"a renewal after the term was removed by hand", versions{absent, 9}, granted, granted, versions{0, 10}},
	} {
		ops, v, err := r.replace("g", c.v, c.old, c.next)
		if err != nil || v != c.want || len(ops) != 2 {
			t.Errorf("%s: %d operations, then %+v, %v: want %+v", c.what, len(ops), v, err, c.want)
		}
		for _, op := range ops {
			switch op := op.(type) {
			case *zk.SetDataRequest:
				if op.Version < 0 {
					t.Errorf("%s writes %s whatever its version", c.what, op.Path)
				}
			case *zk.CheckVersionRequest:
				if op.Version < 0 {
					t.Errorf("%s checks nothing of %s", c.what, op.Path)
				}
			}
		}
	}
	if got := recordVersion(versions{counter: 5, record: math.MinInt32}.version()); got != math.MinInt32 {
		t.Errorf("the record's version is read as %d", got)
	}
}

func TestVersions(t *testing.T) {
	for said, old := range map[string]bool{
		"Zookeeper version: 3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf, built on 03/06/2019 16:18 GMT\n": true,
		"Zookeeper version: 3.5.0-alpha\n":                                    false,
		"Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024-06-16\n": false,
		"Zookeeper version: 3.10.1\n":                                         false,
		"Zookeeper version: 2.9.9\n":                                          true,
		"Zookeeper version: 4.0.0\n":                                          false,
		"srvr is not executed because it is not in the whitelist.\n":          false,
		"": false,
	} {
		err := tooOld(said)
		if (err != nil) != old || err != nil && !errors.Is(err, baton.ErrConflict) {
			t.Errorf("%q: %v", said, err)
		}
	}
}

// A server that says that it is too old is believed; one that says nothing is not judged.
func TestVersionIsAskedFor(t *testing.T) {
	for said, old := range map[string]bool{"Zookeeper version: 3.4.9\n": true, "Zookeeper version: 3.8.0\n": false, "": false} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				served <- err.Error()
				return
			}
			word := make([]byte, 4)
			_, _ = io.ReadFull(conn, word)
			_, _ = io.WriteString(conn, said)
			_ = conn.Close()
			served <- string(word)
		}()
		if err := checkVersion(t.Context(), l.Addr().String()); (err != nil) != old {
			t.Errorf("%q: %v", said, err)
		}
		if word := <-served; word != "srvr" {
			t.Errorf("the server is asked %q", word)
		}
		_ = l.Close()
	}
}

func TestURLs(t *testing.T) {
	for address, want := range map[string]Config{
		"zookeeper://h":                            {Servers: []string{"h"}},
		"zookeeper://h:2181":                       {Servers: []string{"h:2181"}},
		"zookeeper://h1:2181,h2:2182,[::1]:2183/":  {Servers: []string{"h1:2181", "h2:2182", "[::1]:2183"}},
		"zookeeper://h:2181/a/b/":                  {Servers: []string{"h:2181"}, Prefix: "/a/b"},
		"zookeeper://u:p%40ss,w@h1:2181,h2:2181/x": {Servers: []string{"h1:2181", "h2:2181"}, Username: "u", Password: "p@ss,w", Prefix: "/x"},
	} {
		got, err := parseURL(address)
		if err != nil || !slices.Equal(got.Servers, want.Servers) || got.Username != want.Username || got.Password != want.Password || got.Prefix != want.Prefix {
			t.Errorf("%s: %+v, %v: want %+v", address, got, err, want)
		}
	}
	for _, address := range []string{
		"", "h:2181", "etcd://h:2181", "zookeeper://", "zookeeper://h1,,h2", "zookeeper://h:2181?x=1", "zookeeper://h#x",
		"zookeeper://secret@h", "zookeeper://:secret@h", "zookeeper://h:/x", "zookeeper://u:secret@h/a//b", "zookeeper://u:secret@h/../x",
		"zookeeper://h/zookeeper", "zookeeper://h/zookeeper/quota", "zookeeper://u:secret%zz@h", "zookeeper://h/a%00b",
	} {
		_, err := parseURL(address)
		if err == nil {
			t.Errorf("%q is taken", address)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
