package redisfence

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/fence"
)

// Ledger is a fence.Ledger in Redis.
type Ledger struct{ rdb redis.UniversalClient }

var _ fence.Ledger = (*Ledger)(nil)

// New returns the ledger that is kept in rdb: one server, or a cluster. It does
// not close rdb.
func New(rdb redis.UniversalClient) *Ledger { return &Ledger{rdb} }

// Key returns a key for data of the resource, in the ledger's hash slot.
func Key(resource, name string) string { return "{" + resource + "}" + name }

func ledgerKey(resource string) string { return "baton:fence:{" + resource + "}" }

// Adopt implements fence.Ledger.
func (l *Ledger) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	if err := validate(resource, fence.Unordered(t)); err != nil {
		return fence.Record{}, err
	}
	reply, err := adoptScript.Run(ctx, l.rdb, []string{ledgerKey(resource)}, claimArgs(fence.Unordered(t))...).Slice()
	if err != nil {
		return fence.Record{}, fmt.Errorf("adopt resource %q: %w", resource, err)
	}
	adopted, r, err := parseReply(reply)
	if err != nil {
		return fence.Record{}, fmt.Errorf("adopt resource %q: %w", resource, err)
	}
	if !adopted {
		_, err := r.Adopt(resource, t)
		return fence.Record{}, fence.Report(ctx, refusal(err, r))
	}
	return r, nil
}

// Advance implements fence.Ledger.
func (l *Ledger) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	_, err := l.Run(ctx, resource, c, advanceScript, nil)
	return err
}

// Read implements fence.Ledger.
func (l *Ledger) Read(ctx context.Context, resource string) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	fields, err := l.rdb.HMGet(ctx, ledgerKey(resource), "group", "term", "instance", "last_seq").Result()
	if err != nil {
		return fence.Record{}, fmt.Errorf("read resource %q: %w", resource, err)
	}
	if fields[0] == nil && fields[1] == nil && fields[2] == nil && fields[3] == nil {
		return fence.Record{}, nil
	}
	r, err := parseRecord(fields)
	if err != nil {
		return fence.Record{}, fmt.Errorf("read resource %q: %w", resource, err)
	}
	return r, nil
}

// Set is a fenced SET. A ttl of 0 is none; others are rounded up to milliseconds.
func (l *Ledger) Set(ctx context.Context, resource string, c fence.Claim, key string, value any, ttl time.Duration) error {
	if ttl < 0 {
		return &baton.InvalidArgumentError{Field: "ttl", Value: ttl, Want: "0 or more"}
	}
	ms := (ttl + time.Millisecond - 1).Milliseconds()
	_, err := l.Run(ctx, resource, c, setScript, []string{key}, value, ms)
	return err
}

// HSet is a fenced HSET of field and value pairs. It returns how many fields are new.
func (l *Ledger) HSet(ctx context.Context, resource string, c fence.Claim, key string, pairs ...any) (int64, error) {
	if len(pairs) == 0 || len(pairs)%2 != 0 {
		return 0, &baton.InvalidArgumentError{Field: "pairs", Value: len(pairs), Want: "a value for every field"}
	}
	return asInt(l.Run(ctx, resource, c, hsetScript, []string{key}, pairs...))
}

// Del is a fenced DEL. It returns how many of the keys there were.
func (l *Ledger) Del(ctx context.Context, resource string, c fence.Claim, keys ...string) (int64, error) {
	if len(keys) == 0 {
		return 0, &baton.InvalidArgumentError{Field: "keys", Value: 0, Want: "at least one"}
	}
	return asInt(l.Run(ctx, resource, c, delScript, keys))
}

func asInt(reply any, err error) (int64, error) {
	n, _ := reply.(int64)
	return n, err
}

// Run calls a fenced script and returns what its body returned, nil for Lua's
// nil and false. Keys must be in the resource's hash slot, see [Key].
func (l *Ledger) Run(ctx context.Context, resource string, c fence.Claim, s *Script, keys []string, args ...any) (any, error) {
	if err := validate(resource, c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, &fence.AbortedError{Err: context.Cause(ctx)}
	}
	all := make([]string, 0, 1+len(keys))
	all = append(all, ledgerKey(resource))
	for _, k := range keys {
		if err := validateKey(resource, k); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	reply, err := s.lua.Run(ctx, l.rdb, all, append(claimArgs(c), args...)...).Slice()
	if err != nil {
		return nil, fmt.Errorf("write %v to resource %q: %w", c, resource, err)
	}
	if len(reply) > 0 && reply[0] == int64(1) {
		return bodyResult(reply)
	}
	_, r, err := parseReply(reply)
	if err != nil {
		return nil, fmt.Errorf("write %v to resource %q: %w", c, resource, err)
	}
	_, err = r.Admit(resource, c)
	return nil, fence.Report(ctx, refusal(err, r))
}

// bodyResult unpacks {1, result}; Lua drops a nil at the end of a table.
func bodyResult(reply []any) (any, error) {
	if len(reply) < 2 {
		return nil, nil
	}
	if err, ok := reply[1].(error); ok {
		return nil, fmt.Errorf("fenced script: %w", err)
	}
	return reply[1], nil
}

// refusal guards against a script and a Record that decide differently.
func refusal(err error, r fence.Record) error {
	if err == nil {
		return fmt.Errorf("ledger refused what its record (%v) allows", r)
	}
	return err
}

func validate(resource string, c fence.Claim) error {
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	return c.Validate()
}

// validateKey refuses keys of another hash slot, and the record itself.
func validateKey(resource, key string) error {
	if hashed(key) != resource || key == ledgerKey(resource) {
		return &baton.InvalidArgumentError{Field: "key", Value: key, Want: fmt.Sprintf("a key with the hash tag {%s}, other than the ledger's own", resource)}
	}
	return nil
}

// hashed is the part of a key that decides its slot: what stands between the
// first { and the next }, if that is anything, else all of it.
func hashed(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

func claimArgs(c fence.Claim) []any {
	t := c.Token()
	seq := ""
	if n, ok := c.Seq(); ok {
		seq = strconv.FormatInt(n, 10)
	}
	return []any{t.Group, strconv.FormatUint(uint64(t.Term), 10), t.InstanceID, seq}
}

// parseReply reads {1 or 0, group, term, instance, last_seq}.
func parseReply(reply []any) (ok bool, r fence.Record, err error) {
	if len(reply) != 5 {
		return false, r, fmt.Errorf("ledger answered %d values, want 5", len(reply))
	}
	r, err = parseRecord(reply[1:])
	return reply[0] == int64(1), r, err
}

func parseRecord(fields []any) (fence.Record, error) {
	var text [4]string
	for i, f := range fields {
		s, ok := f.(string)
		if !ok {
			return fence.Record{}, fmt.Errorf("ledger record has %T for a field, want text", f)
		}
		text[i] = s
	}
	term, err := strconv.ParseUint(text[1], 10, 64)
	if err != nil {
		return fence.Record{}, fmt.Errorf("ledger record has a damaged term: %w", err)
	}
	seq, err := strconv.ParseInt(text[3], 10, 64)
	if err != nil {
		return fence.Record{}, fmt.Errorf("ledger record has a damaged number: %w", err)
	}
	return fence.Record{Group: text[0], Term: baton.Term(term), InstanceID: text[2], LastSeq: seq}, nil
}
