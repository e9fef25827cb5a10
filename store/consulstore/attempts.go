package consulstore

import (
	"context"
	"fmt"
	"time"

	"baton"
)

// attempts are the transactions of one call that were not answered, or with a
// no, by the session that each would lock the record with.
//
// A no proves little. Something on the way may repeat a request, and of one that
// was carried out the copy is refused, since it finds the record changed: by
// the first. To destroy the session then would end the leadership that rests on it. So an
// attempt is open until the record tells what came of it.
type attempts map[string]attempt

type attempt struct {
	index uint64        // of the record that it was made for
	sent  time.Duration // from before the session was asked for
}

// close forgets the attempts that can take effect no more, and returns their
// sessions: the record is a later one than they were made for, and is locked by
// another session. That does not change again, since no record comes back. One that is
// earlier proves nothing: a server that was frozen and replaced tells what was.
func (a attempts) close(st *state) (idle []string) {
	for session, made := range a {
		if st.index > made.index && st.session != session {
			idle = append(idle, session)
			delete(a, session)
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

// found is the leadership that stands in st if it was one of the attempts that
// gave it its present session: that is the answer which did not come.
func (s *Store) found(st *state, open attempts) (lease baton.Lease, ok bool) {
	made, ok := open[st.session]
	if !ok || !st.Held() {
		return baton.Lease{}, false
	}
	lease = st.Lease()
	lease.Remaining = s.promised(st.Group, st.session, lease.TTL, made.sent)
	return lease, true
}

// undone takes in that a transaction on st, sent by this time, was not seen to be
// done. If Consul refuses it whatever the record is, its session is
// given back, unless the record is locked by it: then the refusal is of a copy.
// A read that may be old does not prove that it is not. A grant nobody
// trusts yet; the session of a renewal is left to run out.
func (s *Store) undone(ctx context.Context, st *state, session string, sent time.Duration, err error, open attempts) error {
	if refused(err) {
		now, unread := s.read(ctx, st.Group, with{})
		if unread == nil && now.session != session {
			if st.session == "" || now.index > st.index {
				s.destroy(session)
			}
			return err
		}
		err = fmt.Errorf("%w: it was refused: %v", errLost, err)
	}
	open[session] = attempt{st.index, sent}
	return err
}
