package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// attempts are the grants of one call that were not answered, or with a no, by
// the etcd lease that each would bind the group to; and for each the revision of
// the record that it was made for.
//
// A no proves little. Something on the way may repeat a request, and of one that
// was carried out the copy is refused, since it finds the record changed: by
// the first. To give the etcd lease back then would end the leadership that rests
// on it. So an attempt is open until the record tells what came of it.
type attempts map[clientv3.LeaseID]int64

// close forgets the attempts that can take effect no more, and returns their
// etcd leases: the record is another than the one that they were made for, and
// rests on another lease. That does not change again, since no record comes back.
func (a attempts) close(st *state) (idle []clientv3.LeaseID) {
	for lease, rev := range a {
		if st.recordRev != rev && st.lease != lease {
			idle = append(idle, lease)
			delete(a, lease)
		}
	}
	return idle
}

// settle keeps a refusal of one attempt from being the answer while another has
// taken effect, or may yet.
func (a attempts) settle(err error) error {
	if len(a) > 0 && refused(err) {
		return fmt.Errorf("%w: a repetition was refused: %v", errLost, err)
	}
	return err
}

// abandon gives back the etcd lease of a grant that etcd refuses, whatever the
// record is, unless that rests on it: then the refusal is of a copy.
func (s *Store) abandon(ctx context.Context, st *state, lease clientv3.LeaseID, refusal error, open attempts) error {
	now, err := s.read(ctx, st.Group, false)
	if err != nil || now.lease == lease {
		open[lease] = st.recordRev
		return fmt.Errorf("%w: it was refused: %v", errLost, refusal)
	}
	s.revoke(lease)
	return refusal
}
