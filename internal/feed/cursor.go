package feed

import (
	"cmp"
	"strconv"
	"strings"

	"baton"
)

// Position orders all events of one store, over all its groups. A replicated
// store takes the index of the log entry and the event's place within it;
// any other counts one of them up. The zero position is before every event.
type Position struct {
	Index  uint64
	Offset uint64
}

// Compare is negative if p is before q, positive if it is after.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Index, q.Index); c != 0 {
		return c
	}
	return cmp.Compare(p.Offset, q.Offset)
}

// FormatCursor writes a position as the cursor of a store. Store is what tells
// its cursors from all others': it must change whenever positions start over.
func FormatCursor(store string, p Position) baton.Cursor {
	b := make([]byte, 0, len(store)+2+2*16)
	b = append(b, store...)
	b = append(b, '.')
	b = strconv.AppendUint(b, p.Index, 16)
	b = append(b, '.')
	b = strconv.AppendUint(b, p.Offset, 16)
	return baton.Cursor(b)
}

// ParseCursor is the inverse of FormatCursor. It takes nothing but what that wrote for
// this very store.
func ParseCursor(store string, c baton.Cursor) (Position, bool) {
	rest, ok := strings.CutPrefix(string(c), store+".")
	if !ok {
		return Position{}, false
	}
	index, offset, ok := strings.Cut(rest, ".")
	if !ok {
		return Position{}, false
	}
	var p Position
	var err error
	if p.Index, err = strconv.ParseUint(index, 16, 64); err != nil {
		return Position{}, false
	}
	if p.Offset, err = strconv.ParseUint(offset, 16, 64); err != nil {
		return Position{}, false
	}
	if FormatCursor(store, p) != c {
		return Position{}, false // capital letters, leading zeros
	}
	return p, true
}
