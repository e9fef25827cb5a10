package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/redisfence"
	"baton/internal/leak"
	"baton/internal/testserver"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) { leak.Main(m) }

const resource = "orders"

func token(term baton.Term, instance string) baton.Token {
	return baton.Token{Group: "payments", Term: term, InstanceID: instance}
}

// connect returns a client of a server, which it empties.
func connect(t testing.TB, url string, change func(*redis.Options)) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.PoolSize = 64
	o.ContextTimeoutEnabled = true
	// What is not answered in time is sent again, and is a repeat then.
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = drill.Unhurried, drill.Unhurried, drill.Unhurried
	if change != nil {
		change(o)
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func shared(t testing.TB) *redis.Client {
	t.Helper()
	rdb := connect(t, testserver.Shared(t, testserver.Redis).URL, nil)
	if err := rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return rdb
}

// adopted returns a ledger whose resource term 5 has adopted.
func adopted(t testing.TB, rdb redis.UniversalClient) (*redisfence.Ledger, baton.Token) {
	t.Helper()
	l, a := redisfence.New(rdb), token(5, "a")
	if _, err := l.Adopt(t.Context(), resource, a); err != nil {
		t.Fatal(err)
	}
	return l, a
}

func script(t testing.TB, body string) *redisfence.Script {
	t.Helper()
	s, err := redisfence.NewScript(body)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// logged is a ledger with a Redis list beside it.
type logged struct {
	*redisfence.Ledger
	rdb redis.UniversalClient
	add *redisfence.Script
}

func (l *logged) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	if between != nil {
		between()
	}
	entry := fence.FormatHeader(c) + "|" + value
	_, err := l.Run(ctx, resource, c, l.add, []string{redisfence.Key(resource, ":log")}, entry)
	return err
}

func (l *logged) Log(ctx context.Context, resource string) ([]fencetest.Entry, error) {
	lines, err := l.rdb.LRange(ctx, redisfence.Key(resource, ":log"), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	entries := make([]fencetest.Entry, len(lines))
	for i, line := range lines {
		header, value, _ := strings.Cut(line, "|")
		c, err := fence.ParseHeader(header)
		if err != nil {
			return nil, err
		}
		entries[i] = fencetest.Entry{Claim: c, Value: value}
	}
	return entries, nil
}

func TestConformance(t *testing.T) {
	fencetest.Run(t, fencetest.Options{}, func(t *testing.T) fencetest.Subject {
		rdb := shared(t)
		return &logged{redisfence.New(rdb), rdb, script(t, `return redis.call('RPUSH', KEYS[1], ARGV[1])`)}
	})
}

// A cluster refuses scripts whose keys are in different slots; ours never are.
func TestConformanceInCluster(t *testing.T) {
	server := testserver.Start(t, testserver.Redis, testserver.Setting("cluster-enabled", "yes"))
	node := connect(t, server.Direct, nil)
	if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	o := node.Options()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, PoolSize: 64, ContextTimeoutEnabled: true,
		DialTimeout: drill.Unhurried, ReadTimeout: drill.Unhurried, WriteTimeout: drill.Unhurried,
	})
	t.Cleanup(func() { _ = cluster.Close() })
	eventually(t, "the cluster to serve", func(ctx context.Context) error { return cluster.Set(ctx, "x", "y", 0).Err() })
	fencetest.Run(t, fencetest.Options{Writes: 500}, func(t *testing.T) fencetest.Subject {
		if err := node.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return &logged{redisfence.New(cluster), cluster, script(t, `return redis.call('RPUSH', KEYS[1], ARGV[1])`)}
	})
}

// eventually tries until it works, for far longer than it should take.
func eventually(t *testing.T, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

func TestSetHSetDel(t *testing.T) {
	ctx, rdb := t.Context(), shared(t)
	l, a := adopted(t, rdb)
	text, hash := redisfence.Key(resource, ":text"), redisfence.Key(resource, ":hash")

	if err := l.Set(ctx, resource, fence.Unordered(a), text, "v", 0); err != nil {
		t.Fatal(err)
	}
	if v, ttl := rdb.Get(ctx, text).Val(), rdb.TTL(ctx, text).Val(); v != "v" || ttl >= 0 {
		t.Errorf("after Set: %q for %v, want v for ever", v, ttl)
	}
	if err := l.Set(ctx, resource, fence.Ordered(a, 1), text, 42, time.Hour); err != nil {
		t.Fatal(err)
	}
	if v, ttl := rdb.Get(ctx, text).Val(), rdb.TTL(ctx, text).Val(); v != "42" || ttl <= 0 {
		t.Errorf("after Set with a TTL: %q for %v", v, ttl)
	}

	const fields = 10_000 // more than Lua unpacks at once
	pairs := make([]any, 0, 2*fields)
	for i := range fields {
		pairs = append(pairs, fmt.Sprintf("f%d", i), i)
	}
	if n, err := l.HSet(ctx, resource, fence.Unordered(a), hash, pairs...); n != fields || err != nil {
		t.Errorf("HSet: %d, %v, want %d new fields", n, err, fields)
	}
	if n, v := rdb.HLen(ctx, hash).Val(), rdb.HGet(ctx, hash, "f9999").Val(); n != fields || v != "9999" {
		t.Errorf("after HSet: %d fields, the last is %q", n, v)
	}
	if n, err := l.HSet(ctx, resource, fence.Unordered(a), hash, "f1", "changed", "new", "1"); n != 1 || err != nil {
		t.Errorf("HSet again: %d, %v, want 1 new field", n, err)
	}

	keys := []string{text, hash}
	for i := range fields {
		keys = append(keys, redisfence.Key(resource, fmt.Sprint(i)))
	}
	if n, err := l.Del(ctx, resource, fence.Ordered(a, 2), keys...); n != 2 || err != nil {
		t.Errorf("Del: %d, %v, want 2 deleted", n, err)
	}
	if n := rdb.Exists(ctx, text, hash).Val(); n != 0 {
		t.Errorf("after Del: %d keys are left", n)
	}
}

func TestRefusedWritesHaveNoEffect(t *testing.T) {
	ctx, rdb := t.Context(), shared(t)
	l, a := adopted(t, rdb)
	kept := redisfence.Key(resource, ":kept")
	if err := l.Set(ctx, resource, fence.Ordered(a, 9), kept, "a", 0); err != nil {
		t.Fatal(err)
	}
	own := script(t, "redis.call('SET', KEYS[1], 'script')")
	for _, tt := range []struct {
		claim fence.Claim
		want  error
	}{
		{fence.Unordered(token(4, "old")), fence.ErrStale},
		{fence.Unordered(token(5, "twin")), fence.ErrStale},
		{fence.Unordered(token(6, "b")), fence.ErrNotAdopted},
		{fence.Unordered(baton.Token{Group: "other", Term: 5, InstanceID: "a"}), fence.ErrWrongGroup},
		{fence.Ordered(a, 9), fence.ErrRepeat},
		{fence.Ordered(a, 0), baton.ErrInvalidArgument},
	} {
		_, hset := l.HSet(ctx, resource, tt.claim, kept, "f", "v")
		_, del := l.Del(ctx, resource, tt.claim, kept)
		_, run := l.Run(ctx, resource, tt.claim, own, []string{kept})
		for op, err := range map[string]error{"Set": l.Set(ctx, resource, tt.claim, kept, "x", 0), "HSet": hset, "Del": del, "Run": run} {
			if !errors.Is(err, tt.want) {
				t.Errorf("%s under %v: got %v, want %v", op, tt.claim, err, tt.want)
			}
		}
	}
	if v := rdb.Get(ctx, kept).Val(); v != "a" {
		t.Errorf("the value is %q, want what the leader wrote", v)
	}
}

func TestKeysMustShareTheSlot(t *testing.T) {
	ctx := t.Context()
	rdb := shared(t)
	l, a := adopted(t, rdb)
	c := fence.Unordered(a)
	for _, key := range []string{"", "plain", "{other}x", "orders:1", "{}{orders}", "{orders", "x{other}{orders}", "baton:fence:{orders}"} {
		if err := l.Set(ctx, resource, c, key, "v", 0); !errors.Is(err, baton.ErrInvalidArgument) {
			t.Errorf("key %q: got %v, want it refused", key, err)
		}
		if n := rdb.Exists(ctx, key).Val(); n != 0 && key != "baton:fence:{orders}" {
			t.Errorf("key %q was written", key)
		}
	}
	for _, key := range []string{"orders", "{orders}", "x{orders}y", "{orders}{other}", redisfence.Key(resource, "a}b{")} {
		if err := l.Set(ctx, resource, c, key, "v", 0); err != nil {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestOwnScript(t *testing.T) {
	ctx, rdb := t.Context(), shared(t)
	l, a := adopted(t, rdb)
	keys := []string{redisfence.Key(resource, ":1"), redisfence.Key(resource, ":2")}
	for _, tt := range []struct {
		name, body string
		want       any
	}{
		{"its own keys and arguments", "return {#KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], ARGV[2]}",
			[]any{int64(2), keys[0], keys[1], int64(2), "x", "7"}},
		{"nothing", "local x = 1", nil},
		{"false", "return false", nil},
		{"status", "return redis.call('SET', KEYS[1], ARGV[1])", "OK"},
		{"comment at the end", "return 7 -- seven", int64(7)},
		{"early return and functions", "local function f(n) return n * 2 end\nif #ARGV == 2 then return f(21) end\nreturn 0", int64(42)},
	} {
		got, err := l.Run(ctx, resource, fence.Unordered(a), script(t, tt.body), keys, "x", 7)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: got %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	for _, body := range []string{"", " \n", "#!lua\nreturn 1"} {
		if _, err := redisfence.NewScript(body); !errors.Is(err, baton.ErrInvalidArgument) {
			t.Errorf("script %q: got %v, want it refused", body, err)
		}
	}
}

// Redis does not roll back, so the documented order is check, number, effect.
func TestScriptThatFails(t *testing.T) {
	ctx, rdb := t.Context(), shared(t)
	l, a := adopted(t, rdb)
	key := redisfence.Key(resource, ":list")

	halfway := script(t, "redis.call('RPUSH', KEYS[1], 'half')\nlocal x = nil\nreturn x.y")
	_, err := l.Run(ctx, resource, fence.Ordered(a, 1), halfway, []string{key})
	if err == nil || fence.Refused(err) {
		t.Errorf("a script that fails half-way: got %v, want an unknown outcome", err)
	}
	if err != nil && !strings.Contains(err.Error(), "user_script:3") {
		t.Errorf("the error does not name the line of the body: %v", err)
	}
	if n := rdb.LLen(ctx, key).Val(); n != 1 {
		t.Errorf("the list has %d entries, want the one from before the failure", n)
	}
	if _, err := l.Run(ctx, resource, fence.Ordered(a, 1), halfway, []string{key}); !errors.Is(err, fence.ErrRepeat) {
		t.Errorf("its number again: got %v, want a repeat", err)
	}
	_, err = l.Run(ctx, resource, fence.Unordered(a), script(t, "return redis.error_reply('NOPE for a reason')"), []string{key})
	if err == nil || !strings.Contains(err.Error(), "NOPE for a reason") {
		t.Errorf("a script that answers an error: got %v", err)
	}
	if _, err := l.Run(ctx, resource, fence.Unordered(a), script(t, "this is not Lua"), []string{key}); err == nil {
		t.Error("a script that is not Lua was run")
	}
	if _, err := l.HSet(ctx, resource, fence.Ordered(a, 2), key, "f", "v"); err == nil || fence.Refused(err) {
		t.Errorf("HSet on a list: got %v, want the server's error", err)
	}
}

func TestServerForgetsScripts(t *testing.T) {
	ctx, rdb := t.Context(), shared(t)
	l, a := adopted(t, rdb)
	for i := range int64(3) {
		if err := l.Set(ctx, resource, fence.Ordered(a, i+1), redisfence.Key(resource, ""), i, 0); err != nil {
			t.Fatal(err)
		}
		if err := rdb.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedRecord(t *testing.T) {
	ctx, rdb := t.Context(), shared(t)
	l := redisfence.New(rdb)
	const record = "baton:fence:{orders}"
	for name, damage := range map[string]func() error{
		"another type":   func() error { return rdb.Set(ctx, record, "x", 0).Err() },
		"missing fields": func() error { return rdb.HSet(ctx, record, "group", "payments").Err() },
		"no number": func() error {
			return rdb.HSet(ctx, record, "group", "payments", "term", "many", "instance", "a", "last_seq", "0").Err()
		},
	} {
		if err := errors.Join(rdb.Del(ctx, record).Err(), damage()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Adopt(ctx, resource, token(5, "a")); err == nil || fence.Refused(err) {
			t.Errorf("%s: adopt: got %v, want an error that is no refusal", name, err)
		}
		key := redisfence.Key(resource, "")
		if err := l.Set(ctx, resource, fence.Unordered(token(5, "a")), key, "v", 0); err == nil || fence.Refused(err) {
			t.Errorf("%s: set: got %v, want an error that is no refusal", name, err)
		}
		if _, err := l.Read(ctx, resource); err == nil {
			t.Errorf("%s: read: no error", name)
		}
		if rdb.Exists(ctx, key).Val() != 0 {
			t.Errorf("%s: the write took effect", name)
		}
	}
}

func TestRecordDoesNotExpire(t *testing.T) {
	ctx, rdb := t.Context(), shared(t)
	l, a := adopted(t, rdb)
	const record = "baton:fence:{orders}"
	if err := rdb.Expire(ctx, record, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Adopt(ctx, resource, a); err != nil {
		t.Fatal(err)
	}
	if ttl := rdb.TTL(ctx, record).Val(); ttl >= 0 {
		t.Errorf("the record expires in %v", ttl)
	}
}

func TestContextThatEnded(t *testing.T) {
	rdb := shared(t)
	l, a := adopted(t, rdb)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var aborted *fence.AbortedError
	key := redisfence.Key(resource, "")
	if err := l.Set(ctx, resource, fence.Unordered(a), key, "v", 0); !errors.As(err, &aborted) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an aborted write", err)
	}
	if rdb.Exists(t.Context(), key).Val() != 0 {
		t.Error("the write took effect")
	}
}

// torn checks in one script and writes in another.
type torn struct{ *logged }

func (l *torn) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	check, err := redisfence.NewScript("return 0")
	if err != nil {
		return err
	}
	if _, err := l.Run(ctx, resource, c, check, nil); err != nil {
		return err
	}
	if between != nil {
		between()
	}
	return l.rdb.RPush(ctx, redisfence.Key(resource, ":log"), fence.FormatHeader(c)+"|"+value).Err()
}

func TestSuiteSeesTornWrites(t *testing.T) {
	fencetest.MustFail(t, fencetest.Options{}, func(t *testing.T) fencetest.Subject {
		rdb := shared(t)
		return &torn{&logged{redisfence.New(rdb), rdb, nil}}
	}, "PausedBetweenCheckAndEffect")
}
