package redisstore

import (
	"context"
	"strings"
	"time"

	"baton"
)

// signEvery is how often one who waits gives a sign of life, and looks whether
// a vacancy escaped it.
const signEvery = 1500 * time.Millisecond

// Await takes a place in line and returns when it is c's turn: at once when the
// group is vacant and nobody is ahead, and a second later for each who is ahead
// and does not come. So one who died costs a second, and one vacancy calls one.
// For the holder it is always its turn.
func (s *Store) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	inner, cancel := s.calls.BeginWait(ctx)
	defer cancel()
	return s.fail(ctx, "await", s.wait(inner, group, c))
}

func (s *Store) wait(ctx context.Context, group string, c baton.Candidate) error {
	me := c.NodeID + "/" + c.InstanceID
	var news *ear
	for {
		// The look is the sign of life, too.
		st, err := s.look(ctx, group, c)
		if err != nil || st.outcome == "called" {
			return err
		}
		if st.outcome != "waits" {
			return st.unexpected("await")
		}
		if news == nil {
			news = s.hub.listen(s.keys.channel(group))
			defer s.hub.leave(news)
		}
		wait, ahead := milliseconds(st.numbers[0]), time.Duration(st.numbers[1])
		if err := pause(ctx, min(wait, signEvery), news, me, ahead*turnKept); err != nil {
			return err
		}
	}
}

func (s *Store) look(ctx context.Context, group string, c baton.Candidate) (*state, error) {
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	return s.run(bounded, awaitScript, group, c.NodeID, c.InstanceID)
}

// pause waits until there is a reason to look again: the time is over, or the
// group is vacant. Then the first in line, who is named, looks at once, the
// others when their turn may have come.
func pause(ctx context.Context, d time.Duration, news *ear, me string, turn time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	end := time.Now().Add(d)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case message := <-news.C:
			first, vacant := strings.CutPrefix(message, "vacant ")
			switch {
			case message == "", vacant && first == me:
				return nil
			case vacant:
				timer.Reset(max(0, min(time.Until(end), turn)))
			}
		}
	}
}
