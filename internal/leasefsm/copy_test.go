package leasefsm

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"baton"
)

// Copies are of the moment in which they were begun, however much changes
// while they are made, and however many are made at once.
func TestCopyIsOfItsMoment(t *testing.T) {
	type begun struct {
		copy *Copy
		want []byte
		more bool
	}
	rapid.Check(t, func(t *rapid.T) {
		r := NewRecord()
		for i := range rapid.IntRange(0, 100).Draw(t, "groups") {
			r.Apply(Acquire{Group: fmt.Sprint("more-", i), Candidate: baton.Candidate{NodeID: "a", InstanceID: "1"}, TTL: time.Second})
		}
		var copies []begun
		finish := func(t *rapid.T, b begun) {
			for b.more {
				b.more = b.copy.Next(7)
			}
			b.copy.Close()
			if !bytes.Equal(b.copy.Bytes(), b.want) {
				t.Fatal("a copy is not what was there when it was begun")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"command": func(t *rapid.T) { r.Apply(drawCommand(t, r)) },
			"grow": func(t *rapid.T) {
				g := fmt.Sprint("more-", rapid.IntRange(0, 200).Draw(t, "group"))
				r.Apply(Acquire{Group: g, Candidate: drawCandidate(t), TTL: time.Second})
			},
			"shrink": func(t *rapid.T) {
				g := fmt.Sprint("more-", rapid.IntRange(0, 200).Draw(t, "group"))
				r.Apply(Expire{Group: g, Term: r.Get(g).Term})
				r.Apply(DeleteGroup{ID: g})
			},
			"begin": func(*rapid.T) {
				if len(copies) < 3 {
					want := r.Snapshot()
					copies = append(copies, begun{r.Copy(), want, true})
				}
			},
			"go on": func(t *rapid.T) {
				for i := range copies {
					if b := &copies[i]; b.more {
						b.more = b.copy.Next(rapid.IntRange(0, 20).Draw(t, "groups"))
					}
				}
			},
			"end": func(t *rapid.T) {
				if len(copies) > 0 {
					finish(t, copies[0])
					copies = copies[1:]
				}
			},
		})
		for _, b := range copies {
			finish(t, b)
		}
		if len(r.copies) != 0 {
			t.Fatal("a copy that was closed is still cared for")
		}
	})
}
