package remotestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"baton"
	"baton/api"
)

// Store is a baton.Store on a Baton server. What the server's own store cannot
// do, such as ending a leadership from outside, it answers with a
// *baton.ConflictError of reason ConflictUnsupported.
type Store struct {
	client     *Client
	guarantees baton.Guarantees
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// New connects to the first server that is ready, and learns from it what its
// store promises. It gives up with ErrUnavailable after Config.Timeout.
func New(ctx context.Context, cfg Config) (*Store, error) {
	c, err := NewClient(cfg)
	if err != nil {
		return nil, err
	}
	ready, err := c.Ready(ctx)
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to the baton server: %w", err)
	}
	g := ready.Guarantees.Guarantees()
	// The wire counts in milliseconds.
	g.MinTTL = max(g.MinTTL, time.Millisecond)
	g.TTLStep = max(g.TTLStep, time.Millisecond)
	// The server has a line of its own where its store has none.
	g.Waiting = baton.WaitLine
	return &Store{client: c, guarantees: g}, nil
}

// Client is the client below.
func (s *Store) Client() *Client { return s.client }

// Guarantees says what the server's store promises.
func (s *Store) Guarantees() baton.Guarantees {
	g := s.guarantees
	g.Caveats = append([]string(nil), g.Caveats...)
	return g
}

// Close ends watches and waits. Leases stay as they are.
func (s *Store) Close() error { return s.client.Close() }

// Acquire implements baton.Store.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := validate(group, c); err != nil {
		return baton.Lease{}, err
	}
	if err := s.guarantees.ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	resp, err := s.client.Campaign(ctx, group, api.CampaignRequest{
		NodeID: c.NodeID, InstanceID: c.InstanceID, Metadata: c.Metadata, LeaseTTL: api.MillisUp(ttl),
	})
	if err != nil {
		return baton.Lease{}, err
	}
	return resp.Lease(group)
}

func validate(group string, c baton.Candidate) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	return c.Validate()
}

// Renew implements baton.Store.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := s.guarantees.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	resp, err := s.client.Renew(ctx, id.Group, api.RenewRequest{
		NodeID: id.NodeID, InstanceID: id.InstanceID, Term: uint64(id.Term), ExtendBy: api.MillisUp(extend),
	})
	if err != nil {
		return baton.Lease{}, err
	}
	return resp.Leader.Lease(id.Group), nil
}

// Release implements baton.Store.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return s.client.Resign(ctx, id.Group, api.ResignRequest{NodeID: id.NodeID, InstanceID: id.InstanceID, Term: uint64(id.Term)})
}

// Get implements baton.Store.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	resp, err := s.client.Leader(ctx, group)
	if err != nil {
		return baton.Lease{}, err
	}
	return resp.Lease(group), nil
}

// Watch implements baton.Store. A watch that loses its server goes on at
// another, from where it was; if none is found for Config.WatchPatience it ends.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.client.Watch(ctx, group, after)
}

// Await implements baton.Line by the server's own line.
func (s *Store) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := validate(group, c); err != nil {
		return err
	}
	displaced := 0
	for {
		wait := waitChunk
		if end, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(end)), time.Millisecond)
		}
		asked := s.client.cfg.Clock.Now()
		resp, err := s.client.Campaign(ctx, group, api.CampaignRequest{
			NodeID: c.NodeID, InstanceID: c.InstanceID, Metadata: c.Metadata, Wait: api.MillisUp(wait),
		})
		switch {
		case isBusy(err) && displaced < maxDisplaced:
			displaced++
		case err != nil:
			return err
		case resp.YourTurn, resp.IsLeader:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		// A server that does not wait must not be asked without pause.
		if waited := s.client.cfg.Clock.Now() - asked; waited < wait/2 && waited < time.Second {
			scoped, cancel := s.client.scope(ctx)
			err := s.client.sleep(scoped, jitter(200*time.Millisecond))
			cancel()
			if err != nil {
				return s.client.ended(ctx, "await")
			}
		}
	}
}

// maxDisplaced is how often a wait is taken up again that an earlier request
// of the same candidate, late on its way, took the place of.
const maxDisplaced = 5

func isBusy(err error) bool {
	var conflict *baton.ConflictError
	return errors.As(err, &conflict) && conflict.Reason == baton.ConflictBusy
}

// noNote is what is told where the caller gave no note: the API demands one.
const noNote = "no reason given"

// End implements baton.Ender. On the wire an ending with a successor is a transfer, whatever its reason.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	if term == 0 || term > baton.MaxTerm {
		return &baton.InvalidArgumentError{Field: "term", Value: term, Want: fmt.Sprintf("1 to %d", baton.MaxTerm)}
	}
	_, err := s.client.StepDown(ctx, group, api.StepDownRequest{
		Term: uint64(term), Reason: cmp.Or(e.Note, noNote), Immediate: e.Immediate, Successor: e.Successor,
	})
	return err
}

// History implements baton.Historian.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	resp, err := s.client.History(ctx, group)
	if err != nil {
		return nil, err
	}
	return resp.History(), nil
}

// Group implements baton.Registry.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	g, err := s.client.Group(ctx, id)
	if err != nil {
		return baton.Group{}, err
	}
	return g.Group(), nil
}

// PutGroup implements baton.Registry.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	out, err := s.client.PutGroup(ctx, api.GroupOf(g))
	if err != nil {
		return baton.Group{}, err
	}
	return out.Group(), nil
}

// DeleteGroup implements baton.Registry.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	return s.client.DeleteGroup(ctx, id)
}

// Groups implements baton.Registry.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	resp, err := s.client.Groups(ctx)
	if err != nil {
		return nil, err
	}
	groups := make([]baton.Group, 0, len(resp.Groups))
	for _, g := range resp.Groups {
		groups = append(groups, g.Group())
	}
	return groups, nil
}
