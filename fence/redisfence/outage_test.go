package redisfence_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"baton/fence"
	"baton/fence/redisfence"
	"baton/internal/testserver"
)

// once has no retries of its own, so that a test sees every failure.
func once(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
}

func TestServerDown(t *testing.T) {
	ctx, server := t.Context(), testserver.Start(t, testserver.Redis)
	l, a := adopted(t, connect(t, server.URL, once))
	key := redisfence.Key(resource, "")
	if err := l.Set(ctx, resource, fence.Ordered(a, 3), key, "before", 0); err != nil {
		t.Fatal(err)
	}

	server.Refuse(t)
	if err := l.Set(ctx, resource, fence.Ordered(a, 4), key, "during", 0); err == nil || fence.Refused(err) {
		t.Errorf("set while the server is cut off: got %v, want an unknown outcome", err)
	}
	if _, err := l.Adopt(ctx, resource, token(6, "b")); err == nil || fence.Refused(err) {
		t.Errorf("adopt while the server is cut off: got %v, want an unknown outcome", err)
	}
	server.Heal(t)

	server.Kill(t)
	server.Restart(t)
	want := fence.Record{Group: a.Group, Term: 5, InstanceID: "a", LastSeq: 3}
	eventually(t, "the server to answer", func(ctx context.Context) error { _, err := l.Read(ctx, resource); return err })
	if r, err := l.Read(ctx, resource); err != nil || r != want {
		t.Errorf("after a power cut: got %v, %v, want %v", r, err, want)
	}
	if _, err := l.Adopt(ctx, resource, token(4, "old")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("adopt by the past after a power cut: got %v, want stale", err)
	}
}

// The answer to a write is lost: its number is not used again, and it lands once.
func TestLostAnswer(t *testing.T) {
	ctx, server := t.Context(), testserver.Start(t, testserver.Redis)
	rdb := connect(t, server.URL, once)
	direct := connect(t, server.Direct, nil)
	l, a := redisfence.New(rdb), token(5, "a")
	seq, err := fence.Adopt(ctx, l, resource, a)
	if err != nil {
		t.Fatal(err)
	}
	push := script(t, `return redis.call('RPUSH', KEYS[1], ARGV[1])`)
	key := redisfence.Key(resource, ":list")
	add := func(ctx context.Context, c fence.Claim, value string) error {
		_, err := l.Run(ctx, resource, c, push, []string{key}, value)
		return err
	}
	landed := func(ctx context.Context, value string) (bool, error) {
		list, err := direct.LRange(ctx, key, 0, -1).Result()
		return slices.Contains(list, value), err
	}
	var numbers []int64
	for _, value := range []string{"before", "lost answer", "after"} {
		sent := 0
		n, err := seq.Do(ctx, fence.Write{
			Landed: func(ctx context.Context, _ fence.Claim) (bool, error) { return landed(ctx, value) },
			Send: func(ctx context.Context, c fence.Claim) error {
				if sent++; sent > 1 || value != "lost answer" {
					return add(ctx, c, value)
				}
				server.Cut(t, testserver.ToClient)
				added := make(chan error, 1)
				go func() { added <- add(ctx, c, value) }()
				eventually(t, "the write to land", func(ctx context.Context) error {
					if ok, err := landed(ctx, value); !ok {
						return errors.Join(err, errors.New("not yet"))
					}
					return nil
				})
				server.Refuse(t) // what was held back is lost
				err := <-added
				if err == nil {
					t.Error("an answer came through the cut")
				}
				server.Heal(t)
				return err
			},
		})
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		numbers = append(numbers, n)
	}
	if want := []int64{1, 2, 4}; !slices.Equal(numbers, want) { // 3 went into finding out
		t.Errorf("got numbers %v, want %v", numbers, want)
	}
	if list := direct.LRange(ctx, key, 0, -1).Val(); len(list) != 3 {
		t.Errorf("the list is %q, want every content once", list)
	}
}
