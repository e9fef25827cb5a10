package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAStoreIsMeasured(t *testing.T) {
	backing, err := startMemory(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &storeHandles{name: "memory", backing: backing}
	r := &storeRow{name: "memory", runs: backing.runs}
	d := usualDose
	d.elections, d.renewals, d.handovers, d.failovers, d.slice = 20, 20, 5, 4, 200*time.Millisecond
	d.within = time.Minute // a machine that stands still measures less in the usual time
	if err := errors.Join(r.take(t.Context(), h, d), h.Close()); err != nil {
		t.Fatal(err)
	}
	if len(r.election) != 18 || len(r.renewal) != 18 || len(r.handover) != 5 || len(r.failover) != 4 || r.perSecond == 0 {
		t.Errorf("got %+v", r)
	}
	if early := r.failover[0]; early < 0 {
		t.Errorf("the next one led %v before the lease's end", -early)
	}
	broken := &storeRow{name: "other", err: errors.New("not there")}
	var out bytes.Buffer
	if err := printStores(&out, machine{Cores: 2, LoadBefore: 9}, []*storeRow{r, broken}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| memory | ", "| other | failed |", "- memory: in this process", "BUSY"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	if err := failures([]*storeRow{r, broken}); !errors.Is(err, broken.err) {
		t.Errorf("a store that failed is not told of: %v", err)
	}
}

func TestWhichStoresAreMeasured(t *testing.T) {
	for _, tt := range []struct {
		only  string
		heavy bool
		want  string
	}{
		{"", false, "memory raft remote etcd redis postgres zookeeper"},
		{"", true, "memory raft remote etcd redis postgres zookeeper consul kubernetes"},
		{"consul,etcd", false, "consul etcd"},
		{"etcd,mysql", false, ""},
	} {
		chosen, err := chooseStores(tt.only, tt.heavy)
		var names []string
		for _, k := range chosen {
			names = append(names, k.name)
		}
		if got := strings.Join(names, " "); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("-only %q, -heavy %t: got %q, %v, want %q", tt.only, tt.heavy, got, err, tt.want)
		}
	}
}
