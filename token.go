package baton

import (
	"context"
	"fmt"
)

// Token travels with everything a leader does. The resource it acts on refuses tokens of
// the past; see package baton/fence.
type Token struct {
	Group string
	Term  Term
	// InstanceID tells two holders apart that a broken store granted the same term.
	InstanceID string
}

func (t Token) String() string {
	return fmt.Sprintf("%s/%d/%s", t.Group, t.Term, t.InstanceID)
}

// Validate reports what is wrong with t as an *InvalidArgumentError.
func (t Token) Validate() error {
	if err := ValidateID("token.group", t.Group); err != nil {
		return err
	}
	if t.Term == 0 || t.Term > MaxTerm {
		return &InvalidArgumentError{Field: "token.term", Value: t.Term, Want: fmt.Sprintf("1 to %d", MaxTerm)}
	}
	return ValidateID("token.instance_id", t.InstanceID)
}

type leadershipKey struct{}

// LeadershipFrom returns the leadership under which ctx works.
func LeadershipFrom(ctx context.Context) (*Leadership, bool) {
	l, ok := ctx.Value(leadershipKey{}).(*Leadership)
	return l, ok
}

// TokenFrom returns the token of the leadership under which ctx works.
func TokenFrom(ctx context.Context) (Token, bool) {
	l, ok := LeadershipFrom(ctx)
	if !ok {
		return Token{}, false
	}
	return l.Token(), true
}
