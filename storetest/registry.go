package storetest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"baton"
)

var registryCases = []Case{
	rule("Registry/PutAndGet", registryPut),
	rule("Registry/PutIfVersion", registryVersion),
	rule("Registry/List", registryList),
	rule("Registry/Delete", registryDelete),
	rule("Registry/DeleteHeld", registryDeleteHeld),
	rule("Registry/Validation", registryValidation),
}

func (e *env) put(r baton.Registry, g baton.Group) baton.Group {
	e.Helper()
	got, err := r.PutGroup(e.Context(), g)
	if err != nil {
		e.Fatalf("put group version %d: %v", g.Version, err)
	}
	if got.Version == 0 || got.Version == g.Version {
		e.Errorf("put group version %d gives version %d: want a new one", g.Version, got.Version)
	}
	e.checkGroup("the answer to put", got, g, got.Version)
	return got
}

func (e *env) checkGroup(what string, got, want baton.Group, version uint64) {
	e.Helper()
	want.Version = version
	if len(got.AllowedNodes) == 0 && len(want.AllowedNodes) == 0 {
		got.AllowedNodes, want.AllowedNodes = nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		e.Errorf("%s is %+v: want %+v", what, got, want)
	}
}

func (e *env) sampleGroup() baton.Group {
	return baton.Group{
		ID:           e.group,
		Policy:       baton.Policy{MinTTL: e.g.MinTTL, MaxTTL: e.long, RetryAfter: 250 * time.Millisecond},
		AllowedNodes: []string{"node-a", "node-b"},
	}
}

func registryPut(e *env) {
	r, ok := e.registry()
	if !ok {
		return
	}
	_, err := r.Group(e.Context(), e.group)
	e.wantKind("group that is not known", err, baton.ErrNotFound)
	put := e.put(r, e.sampleGroup())
	got, err := e.open().(baton.Registry).Group(e.Context(), e.group)
	if err != nil {
		e.Fatalf("group: %v", err)
	}
	e.checkGroup("what another handle reads", got, put, put.Version)
	for i := range got.AllowedNodes {
		got.AllowedNodes[i] = "changed-by-a-reader"
	}
	if got, err = r.Group(e.Context(), e.group); err != nil {
		e.Fatalf("group: %v", err)
	}
	e.checkGroup("what is read after a reader changed its copy", got, put, put.Version)
}

func registryVersion(e *env) {
	r, ok := e.registry()
	if !ok {
		return
	}
	first := e.put(r, e.sampleGroup())
	change := first
	change.AllowedNodes = nil
	second := e.put(e.open().(baton.Registry), change)
	for what, stale := range map[string]uint64{"the version before": first.Version, "no version": 0, "a version to come": second.Version + 1} {
		g := e.sampleGroup()
		g.Version = stale
		_, err := r.PutGroup(e.Context(), g)
		e.wantConflict("put with "+what, err, baton.ConflictVersion)
	}
	got, err := r.Group(e.Context(), e.group)
	if err != nil {
		e.Fatalf("group: %v", err)
	}
	e.checkGroup("what refused puts left", got, second, second.Version)
}

func registryList(e *env) {
	r, ok := e.registry()
	if !ok {
		return
	}
	used, both := e.group, e.group+"-both"
	registered := e.group + "-registered"
	l := e.grant(e.store, candidate("node-a"), e.long)
	e.release(e.store, l.ID())
	byUse, err := r.Group(e.Context(), used)
	if err != nil {
		e.Fatalf("group that exists by use: %v", err)
	}
	e.checkGroup("a group that exists by use", byUse, baton.Group{ID: used}, 0)
	for _, id := range []string{registered, both} {
		e.group = id
		e.put(r, e.sampleGroup())
	}
	e.grant(e.store, candidate("node-a"), e.long)

	all, err := e.open().(baton.Registry).Groups(e.Context())
	if err != nil {
		e.Fatalf("groups: %v", err)
	}
	if !slices.IsSortedFunc(all, func(a, b baton.Group) int { return strings.Compare(a.ID, b.ID) }) {
		e.Errorf("groups are not listed by id")
	}
	count := map[string]int{}
	for _, g := range all {
		count[g.ID]++
		if (g.ID == registered || g.ID == both) != (g.Version != 0) && strings.HasPrefix(g.ID, used) {
			e.Errorf("group %s is listed with version %d", g.ID, g.Version)
		}
	}
	for _, id := range []string{used, registered, both} {
		if count[id] != 1 {
			e.Errorf("group %s is listed %d times", id, count[id])
		}
	}
}

func registryDelete(e *env) {
	r, ok := e.registry()
	if !ok {
		return
	}
	e.wantKind("delete of a group that is not known", r.DeleteGroup(e.Context(), e.group), baton.ErrNotFound)
	put := e.put(r, e.sampleGroup())
	l := e.grant(e.store, candidate("node-a"), e.long)
	e.release(e.store, l.ID())
	if err := e.open().(baton.Registry).DeleteGroup(e.Context(), e.group); err != nil {
		e.Fatalf("delete: %v", err)
	}
	_, err := r.Group(e.Context(), e.group)
	e.wantKind("group that was deleted", err, baton.ErrNotFound)
	all, err := r.Groups(e.Context())
	if err != nil {
		e.Fatalf("groups: %v", err)
	}
	if slices.ContainsFunc(all, func(g baton.Group) bool { return g.ID == e.group }) {
		e.Errorf("the deleted group is listed")
	}
	if _, err := r.PutGroup(e.Context(), put); err == nil {
		e.Errorf("a deleted registration was put by its old version %d", put.Version)
	}
	put.Version = 0
	e.put(r, put)
}

func registryDeleteHeld(e *env) {
	r, ok := e.registry()
	if !ok {
		return
	}
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	e.wantConflict("delete of a held group", r.DeleteGroup(e.Context(), e.group), baton.ConflictHeld)
	e.checkHeld(e.store, a, l.Term)
	e.renew(e.store, l.ID(), e.long)
}

func registryValidation(e *env) {
	r, ok := e.registry()
	if !ok {
		return
	}
	for what, change := range map[string]func(*baton.Group){
		"a bad id":              func(g *baton.Group) { g.ID = "no id" },
		"a negative bound":      func(g *baton.Group) { g.Policy.MinTTL = -1 },
		"a bound beyond all":    func(g *baton.Group) { g.Policy.MaxTTL = baton.MaxTTL + 1 },
		"min above max":         func(g *baton.Group) { g.Policy.MinTTL = g.Policy.MaxTTL + 1 },
		"a bad node":            func(g *baton.Group) { g.AllowedNodes = []string{"node-a", ""} },
		"too many nodes":        func(g *baton.Group) { g.AllowedNodes = slices.Repeat([]string{"n"}, 1001) },
		"a negative retry time": func(g *baton.Group) { g.Policy.RetryAfter = -1 },
	} {
		g := e.sampleGroup()
		change(&g)
		_, err := r.PutGroup(e.Context(), g)
		e.wantInvalid("put with "+what, err)
	}
	_, err := r.Group(e.Context(), e.group)
	e.wantKind("group after refused puts", err, baton.ErrNotFound)
}
