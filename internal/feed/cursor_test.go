package feed

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"baton"
)

func TestCursorsSurviveTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := rapid.StringMatching(`[a-zA-Z0-9._:-]{1,20}`).Draw(t, "store")
		p := Position{rapid.Uint64().Draw(t, "index"), rapid.Uint64().Draw(t, "offset")}
		c := FormatCursor(store, p)
		if got, ok := ParseCursor(store, c); !ok || got != p {
			t.Fatalf("%q: parsed as %v, %v; was %v", c, got, ok, p)
		}
		if _, ok := ParseCursor(store+"x", c); ok {
			t.Fatalf("%q is taken by another store", c)
		}
	})
}

func TestParseCursorIsStrict(t *testing.T) {
	if p, ok := ParseCursor("s.1", "s.1.ff.0"); !ok || (p != Position{255, 0}) {
		t.Fatalf("the canonical form: %v, %v", p, ok)
	}
	for _, c := range []baton.Cursor{
		"", "s.1", "s.1.", "s.1.ff", "s.1.ff.", "s.1..0", "s.1.FF.0", "s.1.0ff.0", "s.1.ff.00", "s.1.+f.0", "s.1.-1.0",
		"s.1.f_f.0", "s.1.0xff.0", " s.1.ff.0", "s.1.ff.0 ", "s.1.ff.0.0", "s.2.ff.0", "s.ff.0", "s.1.10000000000000000.0",
	} {
		if p, ok := ParseCursor("s.1", c); ok {
			t.Errorf("%q is taken as %v", c, p)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("s", "s.1.2")
	f.Add("s", string(FormatCursor("s", Position{math.MaxUint64, math.MaxUint64})))
	f.Fuzz(func(t *testing.T, store, c string) {
		p, ok := ParseCursor(store, baton.Cursor(c))
		if ok && FormatCursor(store, p) != baton.Cursor(c) {
			t.Errorf("%q is taken as %v, which is written %q", c, p, FormatCursor(store, p))
		}
		if ok && !strings.HasPrefix(c, store) {
			t.Errorf("%q is taken by %q", c, store)
		}
	})
}
