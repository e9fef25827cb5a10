package bound

import (
	"encoding/json"
	"fmt"
	"strconv"

	"baton"
)

// Keys is the prefix of a store's keys, and knows what lies below it besides
// the record itself. Ids have no slash in them.
//
//	past/GROUP/NN             a ring of the terms that ended: JSON
//	line/GROUP/NODE/INSTANCE  one who waits, bound to a lease of its own
//	terms/GROUP               the last term; kept apart, so that who removes a record does not reset it
//	policies/GROUP            what is registered: JSON
//	floor                     the term that new groups start above
type Keys string

// Past has the ring of a group below it.
func (k Keys) Past(group string) string { return string(k) + "/past/" + group + "/" }

// Slot is where the leadership is written down that ended last in r.
func (k Keys) Slot(group string, r Record) string {
	return fmt.Sprintf("%s%02d", k.Past(group), r.slot())
}

// Line has the places of a group below it.
func (k Keys) Line(group string) string { return string(k) + "/line/" + group + "/" }

// Place is that of c in the line of a group.
func (k Keys) Place(group string, c baton.Candidate) string {
	return k.Line(group) + c.NodeID + "/" + c.InstanceID
}

// Terms has the last terms of all groups below it.
func (k Keys) Terms() string { return string(k) + "/terms/" }

// Term is the last term of a group.
func (k Keys) Term(group string) string { return k.Terms() + group }

// Policies has below it what is registered.
func (k Keys) Policies() string { return string(k) + "/policies/" }

// Policy is what is registered of a group.
func (k Keys) Policy(group string) string { return k.Policies() + group }

// Floor is the term that new groups start above.
func (k Keys) Floor() string { return string(k) + "/floor" }

// Entry is what the server has under a key. Version is when it was changed
// last, as the server counts changes: it never repeats.
type Entry struct {
	Key     string
	Value   []byte
	Version uint64
}

// Read reads an entry that is JSON.
func Read[T any](e Entry) (T, error) {
	var v T
	if err := json.Unmarshal(e.Value, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", e.Key, err)
	}
	return v, nil
}

// ReadTerm reads an entry that is a term.
func ReadTerm(e Entry) (baton.Term, error) {
	n, err := strconv.ParseUint(string(e.Value), 10, 64)
	if err != nil || n > uint64(baton.MaxTerm) {
		return 0, fmt.Errorf("read %s: %q is no term", e.Key, e.Value)
	}
	return baton.Term(n), nil
}

// FormatTerm is how a term is written down.
func FormatTerm(t baton.Term) string { return strconv.FormatUint(uint64(t), 10) }
