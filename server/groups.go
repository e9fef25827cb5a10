package server

import (
	"context"
	"errors"
	"fmt"

	"baton"
)

// CreateGroup registers a group that is not registered yet; one that is, is *baton.ConflictError.
func (s *Service) CreateGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	g.Version = 0
	return s.PutGroup(ctx, g, &g.Version)
}

// PutGroup registers a group or changes its registration: exactly this
// version of it (0: none), or whatever there is if version is nil.
func (s *Service) PutGroup(ctx context.Context, g baton.Group, version *uint64) (out baton.Group, err error) {
	defer func() {
		s.audit(ctx, "put_group", g.ID, err, "policy", g.Policy, "allowed_nodes", g.AllowedNodes, "version", out.Version)
	}()
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	if s.registry == nil {
		return baton.Group{}, unsupported(s, "keep registrations")
	}
	if err := checkPolicy(g.Policy, s.store.Guarantees()); err != nil {
		return baton.Group{}, err
	}
	defer s.policies.forget(g.ID) // also when the outcome is unknown
	out, err = s.put(ctx, g, version)
	if err != nil {
		return baton.Group{}, err
	}
	s.applyToLeader(ctx, out)
	return out, nil
}

func (s *Service) put(ctx context.Context, g baton.Group, version *uint64) (baton.Group, error) {
	op := "register group " + g.ID
	put := func(version uint64) (baton.Group, error) {
		g.Version = version
		return ask(ctx, s, op, func(ctx context.Context) (baton.Group, error) { return s.registry.PutGroup(ctx, g) })
	}
	if version != nil {
		return put(*version)
	}
	const attempts = 5 // against others who change it at the same moment
	for range attempts - 1 {
		current, err := s.registered(ctx, g.ID)
		if err != nil && !errors.Is(err, baton.ErrNotFound) {
			return baton.Group{}, err
		}
		out, err := put(current.Version)
		var conflict *baton.ConflictError
		if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictVersion {
			return out, err
		}
	}
	return baton.Group{}, &baton.ConflictError{Reason: baton.ConflictVersion, Message: fmt.Sprintf("group %q is being changed by others", g.ID)}
}

// applyToLeader steps a leader down that a new registration does not allow.
// What fails here is made up for by the leader's next renewal.
func (s *Service) applyToLeader(ctx context.Context, g baton.Group) {
	if len(g.AllowedNodes) == 0 {
		return
	}
	lease, err := s.get(ctx, g.ID)
	if err == nil && lease.Held() && lease.Ending == nil && !s.policies.fill(g).allows(lease.NodeID) {
		err = s.stepDownBarred(ctx, lease)
	}
	if err != nil && !errors.Is(err, baton.ErrNotLeader) {
		s.log.Warn("leader could not be asked to step down; it is asked again when it renews", "group", g.ID, "error", err)
	}
}

// Group returns a group: registered, or existing by use.
func (s *Service) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	if s.registry == nil {
		return baton.Group{}, unsupported(s, "keep registrations")
	}
	return s.registered(ctx, id)
}

func (s *Service) registered(ctx context.Context, id string) (baton.Group, error) {
	return ask(ctx, s, "read group "+id, func(ctx context.Context) (baton.Group, error) {
		return s.registry.Group(ctx, id)
	})
}

// Groups lists the groups that are registered or exist by use.
func (s *Service) Groups(ctx context.Context) ([]baton.Group, error) {
	if s.registry == nil {
		return nil, unsupported(s, "list groups")
	}
	return ask(ctx, s, "list groups", s.registry.Groups)
}

// DeleteGroup forgets a vacant group. One that is held is *baton.ConflictError.
func (s *Service) DeleteGroup(ctx context.Context, id string) (err error) {
	defer func() { s.audit(ctx, "delete_group", id, err) }()
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	if s.registry == nil {
		return unsupported(s, "keep registrations")
	}
	defer s.policies.forget(id)
	err = s.tell(ctx, "delete group "+id, func(ctx context.Context) error { return s.registry.DeleteGroup(ctx, id) })
	if err == nil {
		s.roster.forget(id)
	}
	return err
}
