package kubestore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"baton"
	"baton/internal/observed"
)

// policy is what baton-policy-NAME holds. Its version is the object's
// resourceVersion, so versions never repeat.
type policy struct {
	MinTTL     int64    `json:"min_ttl_ns,omitempty"`
	MaxTTL     int64    `json:"max_ttl_ns,omitempty"`
	RetryAfter int64    `json:"retry_after_ns,omitempty"`
	Allowed    []string `json:"allowed_nodes,omitempty"`
}

func readGroup(m *corev1.ConfigMap) (baton.Group, error) {
	var p policy
	if err := json.Unmarshal([]byte(m.Data["policy"]), &p); err != nil {
		return baton.Group{}, fmt.Errorf("read ConfigMap %s: %w", m.Name, err)
	}
	version, err := strconv.ParseUint(m.ResourceVersion, 10, 64)
	if err != nil {
		return baton.Group{}, fmt.Errorf("read ConfigMap %s: its resourceVersion is no number: %w", m.Name, err)
	}
	return baton.Group{
		ID: m.Annotations[groupAnnotation],
		Policy: baton.Policy{
			MinTTL: time.Duration(p.MinTTL), MaxTTL: time.Duration(p.MaxTTL), RetryAfter: time.Duration(p.RetryAfter),
		},
		AllowedNodes: p.Allowed,
		Version:      version,
	}, nil
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	g, err := s.group(bounded, id)
	return g, s.leases.Fail(ctx, "group", err)
}

func (s *Store) group(ctx context.Context, id string) (baton.Group, error) {
	registered, err := s.register.readMap(ctx, policyName(id))
	if err != nil {
		return baton.Group{}, err
	}
	if registered != nil {
		return readGroup(registered)
	}
	used, err := s.register.readMap(ctx, termName(id))
	if err != nil {
		return baton.Group{}, err
	}
	if used == nil {
		return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
	}
	return baton.Group{ID: id}, nil
}

// PutGroup registers a group if its version is the current one.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	value, err := json.Marshal(policy{
		MinTTL: int64(g.Policy.MinTTL), MaxTTL: int64(g.Policy.MaxTTL), RetryAfter: int64(g.Policy.RetryAfter),
		Allowed: g.AllowedNodes,
	})
	if err != nil {
		return baton.Group{}, err
	}
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: policyName(g.ID), Labels: labels(partPolicy), Annotations: annotations(g.ID)},
		// An update that changes nothing would leave the version as it is. It also tells this request from others.
		Data: map[string]string{"policy": string(value), "put": rand.Text()},
	}
	if g.Version != 0 {
		m.ResourceVersion = strconv.FormatUint(g.Version, 10)
	}
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	done, err := s.register.writeMap(bounded, m)
	if errors.Is(err, observed.ErrChanged) {
		now, unread := s.register.readMap(bounded, m.Name)
		if unread != nil {
			return baton.Group{}, s.leases.Fail(ctx, "put group", unread)
		}
		if now != nil && now.Data["put"] == m.Data["put"] { // it was refused to a copy, for what the first has done
			done, err = now, nil
		}
	}
	if errors.Is(err, observed.ErrChanged) {
		return baton.Group{}, &baton.ConflictError{
			Reason:  baton.ConflictVersion,
			Message: fmt.Sprintf("group %q is not at version %d: read it again", g.ID, g.Version),
		}
	}
	if err != nil {
		return baton.Group{}, s.leases.Fail(ctx, "put group", err)
	}
	g, err = readGroup(done)
	return g, s.leases.Fail(ctx, "put group", err)
}

// DeleteGroup forgets a vacant group: the floor rises to its last term, then
// its objects are deleted, each only as it was seen.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	opened := false
	for {
		err := s.deleteGroup(bounded, id, &opened)
		if !errors.Is(err, observed.ErrChanged) || bounded.Err() != nil {
			return s.leases.Fail(ctx, "delete group", err)
		}
	}
}

// deleteGroup deletes a group that is as it was seen. opened is whether this call has deleted
// the vacant Lease before: then there is nobody to wait for, though a candidate that had
// read it may have reserved a term since.
func (s *Store) deleteGroup(ctx context.Context, id string, opened *bool) error {
	r := s.register
	now, err := s.leases.Look(ctx, id)
	if err != nil {
		return err
	}
	if h := now.Record.Holder; h != nil && !(*opened && h.Node == nobody) {
		return &baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", id, h.Node, h.Term),
		}
	}
	registered, err := r.readMap(ctx, policyName(id))
	if err != nil {
		return err
	}
	used, err := r.readCounter(ctx, id)
	if err != nil {
		return err
	}
	lease := now.Aside.(known).lease
	if lease != nil && lease.Annotations[recordAnnotation] == "" {
		lease = nil // others', and no business of ours
	}
	if lease == nil && used.object == nil && registered == nil {
		return fmt.Errorf("delete group %q: %w", id, baton.ErrNotFound)
	}
	if err := r.raiseFloor(ctx, max(now.Record.Term, used.term), max(now.Record.Ended, used.ended)+1); err != nil {
		return err
	}
	// The Lease goes first: if it is as it was seen, nobody leads, and who was about to finds it gone.
	if lease != nil {
		if err := r.remove(ctx, r.lease.Delete, lease); err != nil {
			return err
		}
		*opened = true
	}
	for _, m := range []*corev1.ConfigMap{used.object, registered} {
		if m != nil {
			if err := r.remove(ctx, r.maps.Delete, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes an object if it is as it was read. One that is gone already is what is wanted.
func (r *register) remove(ctx context.Context, del func(context.Context, string, metav1.DeleteOptions) error, object metav1.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	_, err := ask(ctx, r.api, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, del(ctx, object.GetName(), metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
	})
	if missing(err) {
		return nil
	}
	return err
}

// Groups lists the groups that are registered or were led, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	groups, err := s.groups(bounded)
	return groups, s.leases.Fail(ctx, "groups", err)
}

func (s *Store) groups(ctx context.Context) ([]baton.Group, error) {
	// Counters carry the history: their names will do.
	used, err := ask(ctx, s.register.api, func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
		return s.register.names.List(ctx, metav1.ListOptions{LabelSelector: partLabel + "=" + partTerm})
	})
	if err != nil {
		return nil, err
	}
	registered, err := ask(ctx, s.register.api, func(ctx context.Context) (*corev1.ConfigMapList, error) {
		return s.register.maps.List(ctx, metav1.ListOptions{LabelSelector: partLabel + "=" + partPolicy})
	})
	if err != nil {
		return nil, err
	}
	groups := map[string]baton.Group{}
	for _, m := range used.Items {
		id := m.Annotations[groupAnnotation]
		groups[id] = baton.Group{ID: id}
	}
	for _, m := range registered.Items {
		g, err := readGroup(&m)
		if err != nil {
			return nil, err
		}
		groups[g.ID] = g
	}
	all := make([]baton.Group, 0, len(groups))
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, groups[id])
	}
	return all, nil
}
