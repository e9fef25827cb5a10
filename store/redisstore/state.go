package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"baton"
)

// state is a group as a script found or left it.
type state struct {
	group   string
	outcome string
	now     int64      // ms, by the clock of Redis
	last    baton.Term // the last term
	born    string     // tells this group's counter from one of the same name elsewhere; "" if it has none yet
	holder  *holder    // nil if the group is vacant
	past    []past     // those that were asked for, the last one first
	// numbers are what else the script had to tell.
	numbers [2]int64
}

// holder is who leads.
type holder struct {
	past
	ttl    int64
	until  int64
	ending *baton.Ending
}

// past is a leadership that ended.
type past struct {
	Term     baton.Term   `json:"term,string"`
	Node     string       `json:"node"`
	Instance string       `json:"instance"`
	Metadata string       `json:"metadata"` // JSON
	Elected  int64        `json:"elected,string"`
	Ended    int64        `json:"ended,string"`
	Gap      int64        `json:"gap,string"`
	Reason   baton.Reason `json:"reason"`
	Note     string       `json:"note"`
}

var errReply = errors.New("redis answered something else than the script does")

// parseReply reads {outcome, now, last, born, record, past, number, number}.
func parseReply(group string, reply []any) (*state, error) {
	if len(reply) != 8 {
		return nil, errReply
	}
	st := &state{group: group}
	var ok [6]bool
	st.outcome, ok[0] = reply[0].(string)
	st.now, ok[1] = reply[1].(int64)
	last, _ := reply[2].(string)
	st.born, ok[2] = reply[3].(string)
	flat, _ := reply[4].([]any)
	entries, _ := reply[5].([]any)
	st.numbers[0], ok[3] = reply[6].(int64)
	st.numbers[1], ok[4] = reply[7].(int64)
	n, err := strconv.ParseUint(last, 10, 64)
	st.last, ok[5] = baton.Term(n), err == nil
	if ok != [6]bool{true, true, true, true, true, true} {
		return nil, errReply
	}
	if st.holder, err = parseHolder(flat); err != nil {
		return nil, fmt.Errorf("read the record of group %q: %w", group, err)
	}
	for _, e := range entries {
		text, _ := e.(string)
		var p past
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return nil, fmt.Errorf("read the past of group %q: %w", group, err)
		}
		st.past = append(st.past, p)
	}
	return st, nil
}

func parseHolder(flat []any) (*holder, error) {
	fields := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		name, _ := flat[i].(string)
		fields[name], _ = flat[i+1].(string)
	}
	if fields["node"] == "" {
		return nil, nil
	}
	h := &holder{past: past{Node: fields["node"], Instance: fields["instance"], Metadata: fields["metadata"]}}
	term, err := strconv.ParseUint(fields["term"], 10, 64)
	h.Term = baton.Term(term)
	for name, into := range map[string]*int64{"ttl": &h.ttl, "until": &h.until, "elected": &h.Elected, "gap": &h.Gap} {
		n, e := strconv.ParseInt(fields[name], 10, 64)
		*into, err = n, errors.Join(err, e)
	}
	if reason := fields["ending"]; reason != "" {
		h.ending = &baton.Ending{Reason: baton.Reason(reason), Note: fields["note"], Successor: fields["successor"]}
	}
	return h, err
}

func (p past) metadata() map[string]string {
	var m map[string]string
	_ = json.Unmarshal([]byte(p.Metadata), &m) // damaged metadata is no reason not to know who leads
	return m
}

func (p past) term() baton.PastTerm {
	t := baton.PastTerm{
		Term: p.Term, NodeID: p.Node, InstanceID: p.Instance, ElectedAt: time.UnixMilli(p.Elected),
		Reason: p.Reason, Note: p.Note, Gap: milliseconds(p.Gap),
	}
	if p.Reason != "" {
		t.EndedAt = time.UnixMilli(p.Ended)
	}
	return t
}

// lease is the state as a lease.
func (st *state) lease() baton.Lease {
	h := st.holder
	if h == nil {
		return baton.Lease{Group: st.group, Term: st.last}
	}
	return baton.Lease{
		Group: st.group, Term: h.Term, NodeID: h.Node, InstanceID: h.Instance, Metadata: h.metadata(),
		TTL: milliseconds(h.ttl), Remaining: max(0, milliseconds(h.until-st.now)), Ending: h.ending,
	}
}

func (st *state) notLeader(id baton.LeaseID) error {
	current := st.lease()
	return &baton.NotLeaderError{ID: id, Current: &current}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// inMilliseconds rounds up.
func inMilliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func formatTerm(t baton.Term) string { return strconv.FormatUint(uint64(t), 10) }
