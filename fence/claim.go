package fence

import (
	"fmt"

	"baton"
)

// MaxSeq is the highest number of an ordered write: exact in a JSON number.
const MaxSeq int64 = 1<<53 - 1

// Claim is what a write shows to the ledger: under which leadership it is made,
// and, where order matters, its number.
type Claim struct {
	token   baton.Token
	seq     int64
	ordered bool
}

// Unordered claims a write that may land before or after others of its term.
func Unordered(t baton.Token) Claim { return Claim{token: t} }

// Ordered claims a write with a number. It is let in only above every number
// let in before, under any term.
func Ordered(t baton.Token, seq int64) Claim { return Claim{token: t, seq: seq, ordered: true} }

// Token is the leadership under which the write is made.
func (c Claim) Token() baton.Token { return c.token }

// Seq is the write's number; ok is false for a write without one.
func (c Claim) Seq() (seq int64, ok bool) { return c.seq, c.ordered }

func (c Claim) String() string {
	if c.ordered {
		return fmt.Sprintf("%v#%d", c.token, c.seq)
	}
	return c.token.String()
}

// Validate reports what is wrong with c as a *baton.InvalidArgumentError.
func (c Claim) Validate() error {
	if err := c.token.Validate(); err != nil {
		return err
	}
	if c.ordered && (c.seq < 1 || c.seq > MaxSeq) {
		return &baton.InvalidArgumentError{Field: "seq", Value: c.seq, Want: fmt.Sprintf("1 to %d", MaxSeq)}
	}
	return nil
}

// ValidateResource checks the name of a resource. Names follow the rules of
// group ids, so that they can be part of a key, a path or a statement as they are.
func ValidateResource(name string) error { return baton.ValidateID("resource", name) }

// RequireOrdered refuses a claim without a number, as Ledger.Advance does.
func RequireOrdered(c Claim) error {
	if !c.ordered {
		return &baton.InvalidArgumentError{Field: "seq", Value: "", Want: fmt.Sprintf("1 to %d", MaxSeq)}
	}
	return nil
}
