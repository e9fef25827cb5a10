package fence

import (
	"fmt"

	"baton"
)

// Record is what a ledger holds for one resource. The zero Record is that of a
// resource nobody has adopted.
//
// Its methods are the rules that all ledgers obey, without any storage: a
// ledger that decides in another language decides the same.
type Record struct {
	Group      string
	Term       baton.Term
	InstanceID string
	// LastSeq is the highest number let in, 0 if there was none.
	LastSeq int64
}

// Adopted reports whether there is a record at all.
func (r Record) Adopted() bool { return r.Term != 0 }

// Token is the leadership that the resource belongs to.
func (r Record) Token() baton.Token {
	return baton.Token{Group: r.Group, Term: r.Term, InstanceID: r.InstanceID}
}

func (r Record) String() string {
	if !r.Adopted() {
		return "nobody"
	}
	return fmt.Sprintf("%v, last number %d", r.Token(), r.LastSeq)
}

// Adopt returns the record after t adopted the resource: *StaleError if a later
// leadership, or another one of the same term, has it; *WrongGroupError if it
// belongs to another group. Adopting again changes nothing.
func (r Record) Adopt(resource string, t baton.Token) (Record, error) {
	if err := validate(resource, Unordered(t)); err != nil {
		return r, err
	}
	if err := r.refuse(resource, Unordered(t)); err != nil {
		return r, err
	}
	r.Group, r.Term, r.InstanceID = t.Group, t.Term, t.InstanceID
	return r, nil
}

// Admit returns the record after a write that claims c, or why it is refused.
func (r Record) Admit(resource string, c Claim) (Record, error) {
	if err := validate(resource, c); err != nil {
		return r, err
	}
	if err := r.refuse(resource, c); err != nil {
		return r, err
	}
	if r.Term < c.token.Term {
		return r, &NotAdoptedError{Resource: resource, Offered: c, Held: r}
	}
	if c.ordered {
		if c.seq <= r.LastSeq {
			return r, &RepeatError{Resource: resource, Offered: c, Held: r}
		}
		r.LastSeq = c.seq
	}
	return r, nil
}

// refuse applies what Adopt and Admit have in common.
func (r Record) refuse(resource string, c Claim) error {
	t := c.token
	switch {
	case !r.Adopted():
		return nil
	case r.Group != t.Group:
		return &WrongGroupError{Resource: resource, Offered: c, Held: r}
	case t.Term < r.Term, t.Term == r.Term && t.InstanceID != r.InstanceID:
		return &StaleError{Resource: resource, Offered: c, Held: r}
	}
	return nil
}

func validate(resource string, c Claim) error {
	if err := ValidateResource(resource); err != nil {
		return err
	}
	return c.Validate()
}
