package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"baton/internal/boottime"
)

// follows checks that the patterns are found in this order. node-A, node-B and
// node-C stand for whoever is elected first, second and third.
func follows(t *testing.T, told string, patterns ...string) {
	t.Helper()
	rest := told
	names := map[string]string{}
	for _, p := range patterns {
		for name, id := range names {
			p = strings.ReplaceAll(p, name, id)
		}
		name := regexp.MustCompile(`node-[A-C]`).FindString(p)
		if name != "" {
			p = strings.Replace(p, name, `(node-\d)`, 1)
		}
		m := regexp.MustCompile(p).FindStringSubmatchIndex(rest)
		if m == nil {
			t.Fatalf("%q is missing after what was found before it, in:\n%s", p, told)
		}
		if name != "" {
			names[name] = rest[m[2]:m[3]]
		}
		rest = rest[m[1]:]
	}
	if len(names) == 3 && (names["node-A"] == names["node-B"] || names["node-B"] == names["node-C"] || names["node-A"] == names["node-C"]) {
		t.Errorf("one node was elected twice: %v", names)
	}
}

func TestTheStoryIsToldToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		began := time.Now()
		if err := play(t.Context(), &out, boottime.Monotonic()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it takes %v", took)
		}
		// What is said in one moment has no order but that of its speaker.
		follows(t, out.String(),
			`node-A +I lead in term 1\n`,
			`node-A +job 1 done under term 1\n`,
			`--- node-A is cut off`,
			`node-A +I stop: leadership lapsed`,
			`node-B +I lead in term 2\n`,
			`--- node-A had stopped by itself 4\d\dms before node-B was let in`,
			`--- node-B is asked to stop`,
			`node-B +I stop: asked to stop`,
			`node-C +I lead in term 3\n`,
			`from the request to the next leader: 20.0 ms`,
			`node-C +I stop: asked to stop`,
		)
		follows(t, out.String(),
			`node-A leads, term 1\n`,
			`nobody leads: term 1 of node-A is over, EXPIRED`,
			`node-B leads, term 2`,
			`nobody leads: term 2 of node-B is over, RESIGNED`,
			`node-C leads, term 3`,
			`nobody leads: term 3 of node-C is over, RESIGNED`,
		)
	})
}

func TestAnInterruptEndsItCleanly(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			var out bytes.Buffer
			if err := play(ctx, &out, boottime.Monotonic()); err != nil {
				t.Fatalf("interrupted after %v: %v", after, err)
			}
			follows(t, out.String(), `interrupted`)
		})
	}
}
