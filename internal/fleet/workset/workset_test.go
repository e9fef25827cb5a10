package workset

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func open(t *testing.T, size Size) *Set {
	t.Helper()
	dir := t.TempDir()
	if err := Create(dir, size); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The sum over all is that of any parts, in any order, and no other: a piece that is left
// out or done twice shows.
func TestSumsAddUp(t *testing.T) {
	s := open(t, Size{Jobs: 100_001, Segments: 3, SegmentBytes: 2*BlockBytes + 5000})
	if s.Blocks() != 9 {
		t.Fatalf("%d blocks", s.Blocks())
	}
	for _, tt := range []struct {
		name string
		work func(first, last int64) (uint64, error)
		last int64
	}{{"jobs", s.Run, s.Jobs}, {"blocks", s.Compact, s.Blocks()}} {
		sum := func(first, last int64) uint64 {
			t.Helper()
			n, err := tt.work(first, last)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		all := sum(1, tt.last)
		if parts := sum(6, tt.last) + sum(1, 2) + sum(3, 5); parts != all {
			t.Errorf("%s: the parts sum to %x, the whole to %x", tt.name, parts, all)
		}
		if less := sum(1, tt.last-1); less == all {
			t.Errorf("%s: the last does not count", tt.name)
		}
		for unit := int64(1); unit <= 9; unit++ {
			if sum(unit, unit) == 0 {
				t.Errorf("%s: number %d does not count", tt.name, unit)
			}
		}
		if _, err := tt.work(tt.last+1, tt.last+1); err == nil {
			t.Errorf("%s: there is one beyond the last", tt.name)
		}
	}
}

func TestSegmentsAreSparse(t *testing.T) {
	s := open(t, Size{Jobs: 1, Segments: 1, SegmentBytes: 1 << 30})
	info, err := os.Stat(filepath.Join(s.dir, "segment-0000"))
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != 1<<30 || used > 1<<20 {
		t.Errorf("%d bytes, of which %d are on disk", info.Size(), used)
	}
}

func TestNoSet(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("opened nothing")
	}
	if err := Create(t.TempDir(), Size{}); err == nil {
		t.Error("made nothing")
	}
}
