package fencedclient

import (
	"context"
	"encoding/json"

	"baton"
	"baton/fence"
)

// Resource is a resource that a leadership has adopted. It numbers the writes,
// makes each land once, and never uses a number twice; see fence.Sequence for
// what its errors mean. It is safe for concurrent use; writes wait for each other.
type Resource struct {
	client *Client
	name   string
	seq    *fence.Sequence
}

// Take adopts a resource for the leadership under which ctx works.
func (c *Client) Take(ctx context.Context, resource string) (*Resource, error) {
	t, err := fence.TokenFrom(ctx)
	if err != nil {
		return nil, err
	}
	seq, err := fence.Adopt(ctx, c, resource, t)
	if err != nil {
		return nil, err
	}
	return &Resource{client: c, name: resource, seq: seq}, nil
}

// Tick records a tick and returns its number.
func (r *Resource) Tick(ctx context.Context, t Tick) (int64, error) {
	return r.do(ctx, 1, func(ctx context.Context, c fence.Claim) error {
		return r.client.Tick(ctx, r.name, c, t)
	})
}

// Next returns the next count numbers. They are on record as this leadership's
// before it returns, so each of them can be given away.
func (r *Resource) Next(ctx context.Context, count int64) (Numbers, error) {
	if count < 1 || count > MaxCount {
		return Numbers{}, &baton.InvalidArgumentError{Field: "count", Value: count, Want: "1 to 1000000"}
	}
	last, err := r.do(ctx, count, func(ctx context.Context, c fence.Claim) error {
		_, err := r.client.Numbers(ctx, r.name, c, count)
		return err
	})
	if err != nil {
		return Numbers{}, err
	}
	return Numbers{First: last - count + 1, Last: last}, nil
}

// Save replaces the checkpoint and returns the number of that write.
func (r *Resource) Save(ctx context.Context, data json.RawMessage) (int64, error) {
	return r.save(ctx, Saved{Data: data})
}

// SaveAfter is Save, and puts on record which work the checkpoint is for: so
// that an audit finds what was done twice or left out.
func (r *Resource) SaveAfter(ctx context.Context, done Units, data json.RawMessage) (int64, error) {
	return r.save(ctx, Saved{Data: data, Covers: &done})
}

func (r *Resource) save(ctx context.Context, s Saved) (int64, error) {
	return r.do(ctx, 1, func(ctx context.Context, c fence.Claim) error {
		return r.client.SaveCheckpoint(ctx, r.name, c, s)
	})
}

// Checkpoint reads what the last leader, or this one, has saved.
func (r *Resource) Checkpoint(ctx context.Context) (Checkpoint, error) {
	return r.client.Checkpoint(ctx, r.name)
}

func (r *Resource) do(ctx context.Context, count int64, send func(context.Context, fence.Claim) error) (int64, error) {
	return r.seq.Do(ctx, fence.Write{
		Count: count,
		Send:  send,
		Landed: func(ctx context.Context, c fence.Claim) (bool, error) {
			return r.client.Landed(ctx, r.name, c)
		},
	})
}
