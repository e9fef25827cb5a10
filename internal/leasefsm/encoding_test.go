package leasefsm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"baton"
)

var sampleCommands = []Command{
	Acquire{Group: "g", Candidate: baton.Candidate{NodeID: "a", InstanceID: "a1", Metadata: map[string]string{"zone": "eu", "rack": "7"}}, TTL: 10 * time.Second, Stamp: 1_700_000_000_000},
	Extend{ID: baton.LeaseID{Group: "g", NodeID: "a", InstanceID: "a1", Term: 1}, TTL: time.Minute},
	End{Group: "g", Term: 1, Ending: baton.Ending{Reason: baton.Transferred, Note: "rebalance", Successor: "b"}, Stamp: 1_700_000_001_000},
	Release{ID: baton.LeaseID{Group: "g", NodeID: "a", InstanceID: "a1", Term: 1}, Stamp: 1_700_000_002_000},
	Acquire{Group: "h", Candidate: baton.Candidate{NodeID: "b", InstanceID: "b1"}, TTL: time.Second, Stamp: 1_700_000_003_000},
	Expire{Group: "h", Term: 1, Stamp: 1_700_000_004_000},
	DeleteGroup{ID: "h"},
	PutGroup{Group: baton.Group{ID: "i", Policy: baton.Policy{MinTTL: time.Second, MaxTTL: time.Minute, RetryAfter: time.Second}, AllowedNodes: []string{"a", "b"}}},
	RaiseFloor{Term: 1000},
	Acquire{Group: "i", Candidate: baton.Candidate{NodeID: "c", InstanceID: "c1", Metadata: map[string]string{"zone": "us"}}, TTL: time.Second, Stamp: 1_700_000_005_000},
	End{Group: "i", Term: 1001, Ending: baton.Ending{Reason: baton.SteppedDown, Note: "maintenance"}, Stamp: 1_700_000_006_000},
}

func sampleRecord() *Record {
	r := NewRecord()
	for _, c := range sampleCommands {
		r.Apply(c)
	}
	return r
}

// TestEncodingIsStable holds the bytes that logs and backups of version 1
// consist of. If it fails, the version has to rise and the old one to stay readable.
func TestEncodingIsStable(t *testing.T) {
	datadriven.RunTest(t, "testdata/encoding_v1.txt", func(t *testing.T, td *datadriven.TestData) string {
		switch td.Cmd {
		case "command":
			var n int
			td.ScanArgs(t, "sample", &n)
			return fmt.Sprintf("%T %x", sampleCommands[n], AppendCommand(nil, sampleCommands[n]))
		case "snapshot":
			return hex.Dump(sampleRecord().Snapshot())
		}
		td.Fatalf(t, "no such command")
		return ""
	})
}

func TestNewerVersionIsNamed(t *testing.T) {
	command := AppendCommand(nil, sampleCommands[0])
	command[0] = commandVersion + 1
	_, err := DecodeCommand(command)
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a newer command: %v", err)
	}
	snapshot := sampleRecord().Snapshot()
	snapshot[0] = snapshotVersion + 1
	_, err = Restore(snapshot)
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a newer snapshot: %v", err)
	}
}

// TestDamageIsSeen cuts every encoding short at every byte, and lengthens it.
func TestDamageIsSeen(t *testing.T) {
	damaged := func(t *testing.T, whole []byte, decode func([]byte) error) {
		t.Helper()
		if err := decode(whole); err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			if err := decode(whole[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("cut to %d of %d bytes: %v", n, len(whole), err)
			}
		}
		if err := decode(append(bytes.Clone(whole), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("with a byte more: %v", err)
		}
	}
	for _, c := range sampleCommands {
		damaged(t, AppendCommand(nil, c), func(b []byte) error {
			_, err := DecodeCommand(b)
			return err
		})
	}
	damaged(t, sampleRecord().Snapshot(), func(b []byte) error {
		_, err := Restore(b)
		return err
	})
}

// TestImpossibleRecordsAreRefused restores what no commands could have made.
func TestImpossibleRecordsAreRefused(t *testing.T) {
	for name, breakIt := range map[string]func(*Record){
		"floor too high":     func(r *Record) { r.floor = baton.MaxTerm + 1 },
		"version unknown":    func(r *Record) { r.groups["i"].version = r.version + 1 },
		"terms repeat":       func(r *Record) { r.groups["g"].past = append(r.groups["g"].past, r.groups["g"].past[0]) },
		"term zero":          func(r *Record) { r.groups["g"].past[0].term = 0 },
		"term too high":      func(r *Record) { r.groups["i"].holder.term = baton.MaxTerm + 1 },
		"nameless holder":    func(r *Record) { r.groups["i"].holder.nodeID = "" },
		"ttl too long":       func(r *Record) { r.groups["i"].holder.ttl = baton.MaxTTL + 1 },
		"negative gap":       func(r *Record) { r.groups["i"].holder.gap = -1 },
		"ended before begun": func(r *Record) { r.groups["g"].past[0].ended = 0 },
		"unknown reason":     func(r *Record) { r.groups["g"].past[0].reason = "BORED" },
		"immediate mark":     func(r *Record) { r.groups["i"].holder.ending.Immediate = true },
		"held and waiting":   func(r *Record) { r.groups["i"].successor = "a" },
		"no reason to exist": func(r *Record) { r.groups["x"] = &group{} },
		"no id":              func(r *Record) { r.groups[""] = r.groups["g"] },
		"too much history": func(r *Record) {
			p := r.groups["g"].past[0]
			for range MaxHistory {
				p.term++
				r.groups["g"].past = append(r.groups["g"].past, p)
			}
		},
	} {
		r := sampleRecord()
		breakIt(r)
		if _, err := Restore(r.Snapshot()); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range sampleCommands {
		f.Add(AppendCommand(nil, c))
	}
	f.Add([]byte{commandVersion, byte(kindPutGroup), 1, 'g', 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			if c != nil || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
				t.Fatalf("%v, %v", c, err)
			}
			return
		}
		if again := AppendCommand(nil, c); !bytes.Equal(again, b) {
			t.Fatalf("%x was read as %#v, which is %x", b, c, again)
		}
		// Whatever can be decoded can be applied, and leaves a record that can be restored.
		for _, r := range []*Record{NewRecord(), sampleRecord()} {
			if result := r.Apply(c); result.Err != nil && !baton.IsAnswer(result.Err) {
				t.Fatalf("%#v: %v", c, result.Err)
			}
			if _, err := Restore(r.Snapshot()); err != nil {
				t.Fatalf("after %#v: %v", c, err)
			}
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add(NewRecord().Snapshot())
	f.Add(sampleRecord().Snapshot())
	f.Add([]byte{snapshotVersion, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Restore(b)
		if err != nil {
			if r != nil || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
				t.Fatalf("%v, %v", r, err)
			}
			return
		}
		if again := r.Snapshot(); !bytes.Equal(again, b) {
			t.Fatalf("%x was restored as %x", b, again)
		}
		for _, g := range r.Groups() {
			last := r.Get(g.ID).Term
			r.History(g.ID)
			r.State(g.ID)
			result := r.Apply(Acquire{Group: g.ID, Candidate: baton.Candidate{NodeID: "n", InstanceID: "i"}, TTL: 1})
			if result.Granted && result.Lease.Term <= last {
				t.Fatalf("term %d after %d", result.Lease.Term, last)
			}
		}
	})
}
