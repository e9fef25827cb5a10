package kubestore

import (
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"baton/internal/observed"
)

// stored is what the annotation of a Lease holds. Candidates of client-go's
// leave it as it is when they take the Lease, so it counts only as far as the
// Lease's own fields bear it out.
type stored struct {
	observed.Record
	// Transitions is the Lease's leaseTransitions at the last grant of ours.
	Transitions int32 `json:"transitions"`
}

func readStored(l *coordinationv1.Lease) (s stored, ok bool, err error) {
	text, ok := l.Annotations[recordAnnotation]
	if !ok {
		return stored{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return stored{}, false, fmt.Errorf("read annotation %s of Lease %s: %w", recordAnnotation, l.Name, err)
	}
	return s, true, nil
}

// identity is the holderIdentity of one campaign. No id has a slash in it, and
// no other candidate's identity is this one.
func identity(h *observed.Holder) string { return h.Node + "/" + h.Instance }

// holds reports whether the Lease bears out that the holder of s stands. A Lease
// without a holder has either been taken and given back by others since, and then
// it has seen another transition, or was cleared by one who did not hold it.
func (s stored) holds(l *coordinationv1.Lease) bool {
	if s.Holder == nil {
		return false
	}
	holder := value(l.Spec.HolderIdentity)
	return holder == identity(s.Holder) || holder == "" && value(l.Spec.LeaseTransitions) == s.Transitions
}

// state is what a Lease says.
func (s stored) state(l *coordinationv1.Lease) observed.Record {
	r := s.Record
	if s.holds(l) {
		return r
	}
	if r.Holder != nil {
		// Others took the Lease, so they saw ours run out.
		r = r.Expire(milli(l.Spec.AcquireTime))
	}
	if holder := value(l.Spec.HolderIdentity); holder != "" {
		r.Holder = &observed.Holder{
			Node: holder, TTL: max(time.Second, time.Duration(value(l.Spec.LeaseDurationSeconds))*time.Second),
			Beat: l.ResourceVersion, Elected: milli(l.Spec.AcquireTime),
		}
	}
	return r
}

// write makes the Lease say next, to Baton and to candidates of client-go's.
func write(l *coordinationv1.Lease, before stored, next observed.Record, now time.Time) error {
	after := stored{Record: next, Transitions: before.Transitions}
	switch h := next.Holder; {
	case h == nil:
		// As client-go gives a Lease back: it waits for nobody.
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = nil, ptr[int32](1)
		l.Spec.AcquireTime, l.Spec.RenewTime = micro(now), micro(now)
	case before.Holder == nil || before.Holder.Term != h.Term:
		after.Transitions = value(l.Spec.LeaseTransitions) + 1
		l.Spec.LeaseTransitions = &after.Transitions
		l.Spec.AcquireTime, l.Spec.RenewTime = micro(now), micro(now)
	case before.Holder.Beat != h.Beat:
		l.Spec.RenewTime = renewed(l.Spec.RenewTime, now)
	}
	if h := next.Holder; h != nil {
		l.Spec.HolderIdentity = ptr(identity(h))
		l.Spec.LeaseDurationSeconds = ptr(int32((h.TTL + time.Second - 1) / time.Second))
	}
	text, err := json.Marshal(after)
	if err != nil {
		return err
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[recordAnnotation] = string(text)
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[partLabel] = partLease
	return nil
}

// renewed is the renewTime of a renewal. Candidates of client-go's count from
// when they see the Lease change, and see of times whole seconds only. So
// it is a later second than before, whatever the clocks of those who renew
// say: a renewal that they overlook would be cut short.
func renewed(before *metav1.MicroTime, now time.Time) *metav1.MicroTime {
	if before != nil && now.Unix() <= before.Unix() {
		now = time.Unix(before.Unix()+1, 0)
	}
	return micro(now)
}

func micro(t time.Time) *metav1.MicroTime { return ptr(metav1.NewMicroTime(t)) }

func milli(t *metav1.MicroTime) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMilli()
}

func ptr[T any](v T) *T { return &v }

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
