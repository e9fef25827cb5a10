package api

import (
	"maps"

	"baton"
)

// Event is a change of leadership, as one SSE message or one element of a long-poll's answer.
type Event struct {
	Type    string `json:"type"`
	GroupID string `json:"group_id"`
	Term    uint64 `json:"term"`
	// LeaderNodeID is empty when there is no leader.
	LeaderNodeID     string            `json:"leader_node_id"`
	LeaderInstanceID string            `json:"leader_instance_id,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	PreviousNodeID   string            `json:"previous_node_id,omitempty"`
	Reason           string            `json:"reason,omitempty"`
	Gap              bool              `json:"gap,omitempty"`
	Timestamp        int64             `json:"ts_ms"`
	Cursor           string            `json:"cursor"`
}

// WatchResponse is the answer of a long-poll. Cursor is where to go on; it is
// the one that was given if nothing happened.
type WatchResponse struct {
	Events []Event `json:"events"`
	Cursor string  `json:"cursor"`
}

// The names of SSE messages that are not events of the group.
const (
	// SSEBye is the last message of a server that shuts down: reconnect, with
	// the last cursor, to any server.
	SSEBye = "bye"
	// SSEError carries an error body; the stream ends after it.
	SSEError = "error"
)

// EventOf shows e.
func EventOf(e baton.Event) Event {
	return Event{
		Type:             string(e.Type),
		GroupID:          e.Group,
		Term:             uint64(e.Term),
		LeaderNodeID:     e.NodeID,
		LeaderInstanceID: e.InstanceID,
		Metadata:         maps.Clone(e.Metadata),
		PreviousNodeID:   e.PreviousNodeID,
		Reason:           string(e.Reason),
		Gap:              e.Gap,
		Timestamp:        stamp(e.Time),
		Cursor:           string(e.Cursor),
	}
}

// Event is what the server said, in the store's words.
func (e Event) Event() baton.Event {
	return baton.Event{
		Type:           baton.EventType(e.Type),
		Group:          e.GroupID,
		Term:           baton.Term(e.Term),
		NodeID:         e.LeaderNodeID,
		InstanceID:     e.LeaderInstanceID,
		Metadata:       maps.Clone(e.Metadata),
		PreviousNodeID: e.PreviousNodeID,
		Reason:         baton.Reason(e.Reason),
		Gap:            e.Gap,
		Time:           fromStamp(e.Timestamp),
		Cursor:         baton.Cursor(e.Cursor),
	}
}
