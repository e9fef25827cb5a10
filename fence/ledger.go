package fence

import (
	"context"
	"errors"

	"baton"
)

// Ledger is what all ledgers have in common. How a write is joined to its
// check is each ledger's own: it takes the effect as a function that is given
// the transaction, or checks inside the caller's transaction, or sends both as
// one script or request. There is deliberately no method that only checks: its
// answer would be old when the write happens.
//
// Methods validate what they are given (*baton.InvalidArgumentError), answer
// refusals with the error types of this package, and pass every error through
// [Report]. Any other error leaves the outcome unknown. A Ledger is safe for
// concurrent use.
type Ledger interface {
	// Adopt makes the resource t's: writes of earlier terms that are under way
	// have landed or failed when it returns, and none lands later. The first one
	// creates the record and binds the group. It returns the record, whose
	// LastSeq is final as far as others are concerned. Adopting again is
	// harmless. *StaleError or *WrongGroupError if it is refused.
	//
	// Neither a crowd of writers nor one that is frozen keeps it out for long.
	Adopt(ctx context.Context, resource string, t baton.Token) (Record, error)

	// Advance is an ordered write without content: it raises LastSeq to c's
	// number, so that no write with that number or a lower one lands any more.
	// c must be Ordered.
	Advance(ctx context.Context, resource string, c Claim) error

	// Read returns the record, the zero Record if there is none. It is for
	// audits and people: what it returned may be past already. A leader reads
	// after Adopt.
	Read(ctx context.Context, resource string) (Record, error)
}

// Report passes err on, and ends the leadership under which ctx works if err is
// a StaleError about that very leadership. Every ledger's client calls it.
func Report(ctx context.Context, err error) error {
	var stale *StaleError
	if errors.As(err, &stale) {
		if l, ok := baton.LeadershipFrom(ctx); ok && l.Token() == stale.Offered.Token() {
			l.Lose(err)
		}
	}
	return err
}

type tokenKey struct{}

// WithToken returns a context that carries t without its leadership, as a
// server does that was handed the token by its client.
func WithToken(ctx context.Context, t baton.Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, t)
}

// TokenFrom returns the token that ctx carries: the one given to WithToken, else
// that of the leadership under which ctx works. Without either it is a
// *baton.InvalidArgumentError.
func TokenFrom(ctx context.Context) (baton.Token, error) {
	if t, ok := ctx.Value(tokenKey{}).(baton.Token); ok {
		return t, nil
	}
	if t, ok := baton.TokenFrom(ctx); ok {
		return t, nil
	}
	return baton.Token{}, &baton.InvalidArgumentError{Field: "token", Value: "", Want: "a context of a leadership"}
}
