package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"baton"
	"baton/internal/observed"
)

// counter is what baton-term-NAME holds: the last term that was reserved for a
// grant. It is kept apart from the Lease, so that who deletes the Lease does not set it back.
type counter struct {
	term baton.Term
	// longest is the longest TTL that was ever asked for. Whoever leads when the
	// Lease is deleted trusts it for no longer.
	longest time.Duration
	// ended is the number of the leadership that the term was reserved for.
	ended uint64
	past  []observed.Past

	object *corev1.ConfigMap // nil if there is none
}

// floor is what baton-floor holds: a term that every grant exceeds, and a number
// of leaderships above those of groups that were deleted.
type floor struct {
	term  baton.Term
	ended uint64

	object *corev1.ConfigMap
}

func parseNumber(m *corev1.ConfigMap, key string) (uint64, error) {
	n, err := strconv.ParseUint(m.Data[key], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read ConfigMap %s: %s is %q: want a number", m.Name, key, m.Data[key])
	}
	return n, nil
}

func parseTerm(m *corev1.ConfigMap) (baton.Term, error) {
	n, err := parseNumber(m, "term")
	if err == nil && n > uint64(baton.MaxTerm) {
		err = fmt.Errorf("read ConfigMap %s: %d is no term", m.Name, n)
	}
	return baton.Term(n), err
}

func (r *register) readMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	m, err := ask(ctx, r.api, func(ctx context.Context) (*corev1.ConfigMap, error) {
		return r.maps.Get(ctx, name, metav1.GetOptions{})
	})
	if missing(err) {
		return nil, nil
	}
	return m, err
}

// writeMap creates m, or replaces what it was read from.
func (r *register) writeMap(ctx context.Context, m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	done, err := ask(ctx, r.api, func(ctx context.Context) (*corev1.ConfigMap, error) {
		if m.ResourceVersion == "" {
			return r.maps.Create(ctx, m, metav1.CreateOptions{})
		}
		return r.maps.Update(ctx, m, metav1.UpdateOptions{})
	})
	if m.ResourceVersion != "" {
		err = changed(err)
	}
	return done, err
}

func (r *register) readCounter(ctx context.Context, group string) (c counter, err error) {
	if c.object, err = r.readMap(ctx, termName(group)); err != nil || c.object == nil {
		return c, err
	}
	if c.term, err = parseTerm(c.object); err != nil {
		return c, err
	}
	if c.ended, err = parseNumber(c.object, "ended"); err != nil {
		return c, err
	}
	if c.longest, err = time.ParseDuration(c.object.Data["longest-ttl"]); err != nil {
		return c, fmt.Errorf("read ConfigMap %s: longest-ttl: %w", c.object.Name, err)
	}
	if err := json.Unmarshal([]byte(c.object.Data["past"]), &c.past); err != nil {
		return c, fmt.Errorf("read ConfigMap %s: past: %w", c.object.Name, err)
	}
	return c, nil
}

func (r *register) writeCounter(ctx context.Context, group string, c counter) error {
	past, err := json.Marshal(c.past)
	if err != nil {
		return err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: termName(group), Labels: labels(partTerm), Annotations: annotations(group)}}
	if c.object != nil {
		m = c.object.DeepCopy()
	}
	m.Data = map[string]string{
		"term":        strconv.FormatUint(uint64(c.term), 10),
		"longest-ttl": c.longest.String(),
		"ended":       strconv.FormatUint(c.ended, 10),
		"past":        string(past),
	}
	_, err = r.writeMap(ctx, m)
	return err
}

// remember adds the leadership that ended last, unless it is there already.
func (c *counter) remember(last *observed.Past) {
	if last == nil || slices.ContainsFunc(c.past, func(p observed.Past) bool { return p.N == last.N && p.Term == last.Term }) {
		return
	}
	c.past = append(c.past, *last)
	if more := len(c.past) - observed.MaxPast; more > 0 {
		c.past = slices.Delete(c.past, 0, more)
	}
}

// reserve raises the counter above every term that was granted before the group
// was read as old, and above every other reservation.
//
// The counter is read before the floor: deleting a group raises the floor
// first, so at every moment one of the two is above all that was granted.
func (r *register) reserve(ctx context.Context, group string, old observed.Record, ttl time.Duration) (baton.Term, error) {
	c, err := r.readCounter(ctx, group)
	if err != nil {
		return 0, err
	}
	f, err := r.readFloor(ctx)
	if err != nil {
		return 0, err
	}
	last := max(c.term, f.term, old.Term)
	if last >= baton.MaxTerm {
		return 0, &baton.ConflictError{
			Reason:  baton.ConflictTermsExhausted,
			Message: fmt.Sprintf("group %q has used up its terms: the last one is %d", group, last),
		}
	}
	c.term, c.longest, c.ended = last+1, max(c.longest, ttl), old.Ended
	c.remember(old.Last)
	return c.term, r.writeCounter(ctx, group, c)
}

// readFloor reads the floor, and makes it if there is none.
func (r *register) readFloor(ctx context.Context) (f floor, err error) {
	if f.object, err = r.readMap(ctx, floorName); err != nil {
		return f, err
	}
	if f.object == nil {
		f.object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: floorName, Labels: labels(partFloor)}}
		f, err = r.writeFloor(ctx, f)
		if errors.Is(err, observed.ErrChanged) { // another was faster
			f.object, err = r.readMap(ctx, floorName)
		}
		if err != nil || f.object == nil {
			return f, errors.Join(err, errNoFloor)
		}
	}
	if f.term, err = parseTerm(f.object); err != nil {
		return f, err
	}
	f.ended, err = parseNumber(f.object, "ended")
	return f, err
}

var errNoFloor = errors.New("there is no ConfigMap " + floorName + ", and it could not be made")

func (r *register) writeFloor(ctx context.Context, f floor) (floor, error) {
	m := f.object.DeepCopy()
	m.Data = map[string]string{
		"term":  strconv.FormatUint(uint64(f.term), 10),
		"ended": strconv.FormatUint(f.ended, 10),
	}
	var err error
	f.object, err = r.writeMap(ctx, m)
	return f, err
}

// raiseFloor makes sure that groups without a counter start above this term.
func (r *register) raiseFloor(ctx context.Context, term baton.Term, ended uint64) error {
	for {
		f, err := r.readFloor(ctx)
		if err != nil || f.term >= term && f.ended >= ended {
			return err
		}
		f.term, f.ended = max(f.term, term), max(f.ended, ended)
		if _, err = r.writeFloor(ctx, f); !errors.Is(err, observed.ErrChanged) {
			return err
		}
	}
}

// findPlace is what tells cursors of this namespace of this cluster from others.
func (r *register) findPlace(ctx context.Context) (string, error) {
	r.mu.Lock()
	place := r.place
	r.mu.Unlock()
	if place != "" {
		return place, nil
	}
	f, err := r.readFloor(ctx)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.place = strings.ReplaceAll(string(f.object.UID), "-", "")
	return r.place, nil
}
