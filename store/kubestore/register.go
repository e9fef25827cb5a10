package kubestore

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"baton/internal/observed"
)

// register keeps the record of a group in its Lease. A version is a
// resourceVersion.
type register struct {
	api    requests
	lease  coordination.LeaseInterface
	maps   core.ConfigMapInterface
	names  metadata.ResourceInterface
	server rest.Interface
	stream *stream

	mu    sync.Mutex
	place string
}

var (
	_ observed.Register = (*register)(nil)
	_ observed.Peeker   = (*register)(nil)
)

// known is what a snapshot has aside: the Lease, nil if there is none, and what its annotation holds.
type known struct {
	lease  *coordinationv1.Lease
	stored stored
}

// Read reads the Lease. What its annotation does not tell, because there is none, the counter does.
func (r *register) Read(ctx context.Context, group string) (observed.Snapshot, error) {
	place, err := r.findPlace(ctx)
	if err != nil {
		return observed.Snapshot{}, err
	}
	l, err := ask(ctx, r.api, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.lease.Get(ctx, objectName(group), metav1.GetOptions{})
	})
	if missing(err) {
		l, err = nil, nil
	}
	if err != nil {
		return observed.Snapshot{}, err
	}
	var s stored
	ok := false
	if l != nil {
		if s, ok, err = readStored(l); err != nil {
			return observed.Snapshot{}, err
		}
	}
	if !ok {
		if s.Record, err = r.lost(ctx, group, l == nil); err != nil {
			return observed.Snapshot{}, err
		}
	}
	if l == nil {
		return observed.Snapshot{Record: s.Record, Place: place, Aside: known{}}, nil
	}
	return snapshot(l, s, place), nil
}

// Peek shows the Lease as the watch has told of it.
func (r *register) Peek(ctx context.Context, group string) (observed.Snapshot, error) {
	l, ok := r.stream.last(objectName(group))
	if !ok || l.Annotations[recordAnnotation] == "" {
		return r.Read(ctx, group)
	}
	place, err := r.findPlace(ctx)
	if err != nil {
		return observed.Snapshot{}, err
	}
	return answered(l, place)
}

func snapshot(l *coordinationv1.Lease, s stored, place string) observed.Snapshot {
	return observed.Snapshot{
		Record: s.state(l), Version: observed.Version(l.ResourceVersion), Place: place, Aside: known{l, s},
	}
}

// nobody is who holds a group whose Lease was deleted.
const nobody = "(the Lease was deleted)"

// lost is the record of a group whose Lease says nothing, from what its counter
// says. What led before is forgotten. If the Lease is gone, whoever held it may
// go on trusting it for a TTL, so every observer counts one, from when it first missed this Lease.
func (r *register) lost(ctx context.Context, group string, gone bool) (observed.Record, error) {
	c, err := r.readCounter(ctx, group)
	if err != nil {
		return observed.Record{}, err
	}
	f, err := r.readFloor(ctx)
	if err != nil {
		return observed.Record{}, err
	}
	record := observed.Record{Term: max(c.term, f.term), Ended: f.ended}
	if c.object != nil {
		record.Ended = max(record.Ended, c.ended+1)
	}
	record.Forgotten = record.Ended
	if gone && c.object != nil {
		record.Holder = &observed.Holder{
			Node: nobody, TTL: c.longest, Beat: c.object.ResourceVersion,
			Elected: c.object.CreationTimestamp.UnixMilli(),
		}
	}
	return record, nil
}

// Swap updates the Lease, if it is the one that was read. Before a grant its
// term is reserved.
//
// Why no term is granted after a higher one: the Lease was read before the term
// was reserved, and it exists. Had anyone been granted a higher term, reserved
// after ours, the Lease would have changed since it was read. That is why a
// Lease that is missing is first made without a holder: no two Leases have a
// resourceVersion in common.
func (r *register) Swap(ctx context.Context, group string, old observed.Snapshot, next observed.Record) (observed.Snapshot, error) {
	was := old.Aside.(known)
	grants := next.Term > old.Record.Term
	if was.lease == nil {
		vacant := next
		if grants {
			vacant = old.Record
		}
		made, err := r.create(ctx, group, vacant, old.Place)
		if err != nil || !grants {
			return made, err
		}
		was = made.Aside.(known)
	}
	switch holder := old.Record.Holder; {
	case grants:
		term, err := r.reserve(ctx, group, old.Record, next.Holder.TTL)
		if err != nil {
			return observed.Snapshot{}, err
		}
		granted := *next.Holder
		granted.Term, next.Term = term, term
		next.Holder = &granted
	case holder != nil && holder.Term == 0 && next.Ended > old.Record.Ended:
		// No reservation has kept the end before this one.
		if err := r.remember(ctx, group, old.Record.Last); err != nil {
			return observed.Snapshot{}, err
		}
	}
	l := was.lease.DeepCopy()
	if err := write(l, was.stored, next, time.Now()); err != nil {
		return observed.Snapshot{}, err
	}
	return r.update(ctx, l, old.Place)
}

// update sends the uid too: without it the API server would make a Lease anew
// that has been deleted.
func (r *register) update(ctx context.Context, l *coordinationv1.Lease, place string) (observed.Snapshot, error) {
	done, err := ask(ctx, r.api, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.lease.Update(ctx, l, metav1.UpdateOptions{})
	})
	if err != nil {
		return observed.Snapshot{}, changed(err)
	}
	return answered(done, place)
}

func (r *register) create(ctx context.Context, group string, vacant observed.Record, place string) (observed.Snapshot, error) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: objectName(group), Annotations: annotations(group)}}
	if err := write(l, stored{}, vacant, time.Now()); err != nil {
		return observed.Snapshot{}, err
	}
	done, err := ask(ctx, r.api, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.lease.Create(ctx, l, metav1.CreateOptions{})
	})
	if err != nil {
		return observed.Snapshot{}, err
	}
	return answered(done, place)
}

func answered(l *coordinationv1.Lease, place string) (observed.Snapshot, error) {
	s, _, err := readStored(l)
	if err != nil {
		return observed.Snapshot{}, err
	}
	return snapshot(l, s, place), nil
}

// remember keeps a line of the history that no reservation will.
func (r *register) remember(ctx context.Context, group string, last *observed.Past) error {
	if last == nil {
		return nil
	}
	c, err := r.readCounter(ctx, group)
	if err != nil || c.object == nil {
		return err
	}
	c.remember(last)
	return r.writeCounter(ctx, group, c)
}

// Past returns the leaderships before the last.
func (r *register) Past(ctx context.Context, group string) ([]observed.Past, error) {
	c, err := r.readCounter(ctx, group)
	return c.past, err
}

// Wait returns when the Lease may be another.
func (r *register) Wait(ctx context.Context, group string, known observed.Version) error {
	return r.stream.wait(ctx, objectName(group), string(known))
}
