package baton

import (
	"fmt"
	"time"
)

const (
	maxIDLength      = 128
	maxMetadataPairs = 32
	maxMetadataBytes = 4 << 10
	wantID           = "1 to 128 of A-Z a-z 0-9 . _ : - and not . or .."
)

// ValidateID checks a group, node or instance id; field is how the error calls it.
func ValidateID(field, id string) error {
	ok := len(id) >= 1 && len(id) <= maxIDLength && id != "." && id != ".."
	for i := 0; ok && i < len(id); i++ {
		ok = isIDByte(id[i])
	}
	if !ok {
		return &InvalidArgumentError{Field: field, Value: id, Want: wantID}
	}
	return nil
}

func isIDByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == ':' || c == '-'
}

// ValidateMetadata checks the bounds of what a candidate may attach.
func ValidateMetadata(m map[string]string) error {
	if len(m) > maxMetadataPairs {
		return &InvalidArgumentError{Field: "metadata", Value: fmt.Sprintf("%d pairs", len(m)), Want: fmt.Sprintf("at most %d", maxMetadataPairs)}
	}
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if size > maxMetadataBytes {
		return &InvalidArgumentError{Field: "metadata", Value: fmt.Sprintf("%d bytes", size), Want: fmt.Sprintf("at most %d", maxMetadataBytes)}
	}
	return nil
}

// Validate checks ids and metadata.
func (c Candidate) Validate() error {
	if err := ValidateID("node_id", c.NodeID); err != nil {
		return err
	}
	if err := ValidateID("instance_id", c.InstanceID); err != nil {
		return err
	}
	return ValidateMetadata(c.Metadata)
}

// Validate checks that id can name a leadership at all.
func (id LeaseID) Validate() error {
	if err := ValidateID("group", id.Group); err != nil {
		return err
	}
	if err := ValidateID("node_id", id.NodeID); err != nil {
		return err
	}
	if err := ValidateID("instance_id", id.InstanceID); err != nil {
		return err
	}
	if id.Term == 0 || id.Term > MaxTerm {
		return &InvalidArgumentError{Field: "term", Value: id.Term, Want: fmt.Sprintf("1 to %d", MaxTerm)}
	}
	return nil
}

// ValidateTTL checks what Acquire was asked for against g, the bounds of its store.
func (g Guarantees) ValidateTTL(ttl time.Duration) error {
	if ttl < g.MinTTL || ttl > g.MaxTTL || ttl <= 0 {
		return &InvalidTTLError{Field: "ttl", TTL: ttl, Min: g.MinTTL, Max: g.MaxTTL}
	}
	return nil
}

// ValidateExtend checks what Renew was asked for. A renewal may ask for less than a grant may.
func (g Guarantees) ValidateExtend(extend time.Duration) error {
	if extend <= 0 || extend > g.MaxTTL {
		return &InvalidTTLError{Field: "extend", TTL: extend, Min: time.Millisecond, Max: g.MaxTTL}
	}
	return nil
}

// Validate checks an ending as asked for.
func (e Ending) Validate() error {
	switch e.Reason {
	case SteppedDown:
	case Transferred:
		if e.Successor == "" {
			return &InvalidArgumentError{Field: "successor", Value: "", Want: "the node to transfer to"}
		}
	default:
		return &InvalidArgumentError{Field: "reason", Value: string(e.Reason), Want: "STEPPED_DOWN or TRANSFERRED"}
	}
	if e.Successor != "" {
		if err := ValidateID("successor", e.Successor); err != nil {
			return err
		}
	}
	if len(e.Note) > maxNoteBytes {
		return &InvalidArgumentError{Field: "note", Value: fmt.Sprintf("%d bytes", len(e.Note)), Want: fmt.Sprintf("at most %d", maxNoteBytes)}
	}
	return nil
}

const (
	maxNoteBytes    = 1 << 10
	maxAllowedNodes = 1000
)

// Validate checks a registration: its id, and that its bounds can be kept at all.
func (g Group) Validate() error {
	if err := ValidateID("group_id", g.ID); err != nil {
		return err
	}
	p := g.Policy
	for _, f := range []struct {
		name string
		d    time.Duration
		most time.Duration
	}{
		{"policy.min_ttl", p.MinTTL, MaxTTL},
		{"policy.max_ttl", p.MaxTTL, MaxTTL},
		{"policy.retry_after", p.RetryAfter, MaxTTL},
	} {
		if f.d < 0 || f.d > f.most {
			return &InvalidArgumentError{Field: f.name, Value: f.d, Want: fmt.Sprintf("0 to %v", f.most)}
		}
	}
	if p.MinTTL > 0 && p.MaxTTL > 0 && p.MinTTL > p.MaxTTL {
		return &InvalidArgumentError{Field: "policy.min_ttl", Value: p.MinTTL, Want: fmt.Sprintf("at most policy.max_ttl, which is %v", p.MaxTTL)}
	}
	if len(g.AllowedNodes) > maxAllowedNodes {
		return &InvalidArgumentError{Field: "allowed_nodes", Value: fmt.Sprintf("%d nodes", len(g.AllowedNodes)), Want: fmt.Sprintf("at most %d", maxAllowedNodes)}
	}
	for _, n := range g.AllowedNodes {
		if err := ValidateID("allowed_nodes", n); err != nil {
			return err
		}
	}
	return nil
}
