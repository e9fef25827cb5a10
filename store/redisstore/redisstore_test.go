package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/internal/testserver"
	"baton/store/redisstore"
	"baton/storetest/drill"
)

// one is a store of its own in a Redis that is not hurt, and a client to meddle
// with what it keeps below the prefix.
func one(t *testing.T) (s *redisstore.Store, rdb *redis.Client, prefix string) {
	t.Helper()
	url := testserver.Shared(t, testserver.Redis).URL
	cfg := configOf(t, url)
	cfg.Prefix = freshPrefix()
	return open(t, cfg), connect(t, url), cfg.Prefix
}

func TestTermsSurviveTheLossOfAKey(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	for n, lost := range []string{"record", "term", "past", "record"} {
		for i := range 3 {
			drill.Release(t, s, drill.Lead(t, s, "g", fmt.Sprint("i-", n, "-", i), time.Minute))
		}
		if n := rdb.Del(t.Context(), prefix+":{g}:"+lost).Val(); n != 1 {
			t.Fatalf("%d keys %s were there", n, lost)
		}
		want := baton.Term(3 * (n + 1))
		if l, err := s.Get(t.Context(), "g"); err != nil || l.Term != want || l.Held() {
			t.Errorf("without its %s the group reads %+v, %v: want it vacant after term %d", lost, l, err, want)
		}
	}
	if l := drill.Lead(t, s, "g", "after", time.Minute); l.Term != 13 {
		t.Errorf("term %d after 12", l.Term)
	}
}

func TestTermsBeyondWhatLuaPrints(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	last := baton.MaxTerm - 2
	rdb.HSet(t.Context(), prefix+":{g}:term", "last", uint64(last))
	for n := range 2 {
		l := drill.Lead(t, s, "g", fmt.Sprint("i-", n), time.Minute)
		if last++; l.Term != last {
			t.Fatalf("term %d: want %d", l.Term, last)
		}
		drill.Release(t, s, l)
	}
	past, err := s.History(t.Context(), "g")
	if err != nil || len(past) != 2 || past[1].Term != last {
		t.Errorf("history %+v, %v", past, err)
	}
	_, err = s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "n", InstanceID: "more"}, time.Minute)
	var conflict *baton.ConflictError
	if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictTermsExhausted {
		t.Errorf("acquire after the last term: %v", err)
	}
}

func TestHistoryKeepsAHundredAndCursorsLastAsLong(t *testing.T) {
	t.Parallel()
	s, _, _ := one(t)
	var cursor baton.Cursor
	for ev, err := range s.Watch(t.Context(), "g", "") {
		if err != nil {
			t.Fatal(err)
		}
		cursor = ev.Cursor
		break
	}
	present := drill.HistoryKeepsAHundred(t, s)
	for ev, err := range s.Watch(t.Context(), "g", cursor) {
		if err != nil {
			t.Fatal(err)
		}
		if !ev.Gap || ev.Type != baton.LeaderChanged || ev.Term != present {
			t.Errorf("watch after a cursor that is forgotten: %+v, want the present state as a gap", ev)
		}
		break
	}
}

// An expiry that nobody was there to see is dated when the lease ran out, and
// stands: a clock that is set back revives nothing.
func TestExpiryIsWrittenDownByWhoLooks(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	l := drill.Lead(t, s, "g", "i-1", 100*time.Millisecond)
	drill.Eventually(t, "the lease to be over", func() bool {
		now, err := s.Get(t.Context(), "g")
		return err == nil && !now.Held()
	})
	past, err := s.History(t.Context(), "g")
	if err != nil || len(past) != 1 || past[0].Reason != baton.Expired || past[0].EndedAt.Sub(past[0].ElectedAt) != 100*time.Millisecond {
		t.Fatalf("history: %+v, %v: want one term that expired after 100 ms", past, err)
	}
	if until := rdb.HGet(t.Context(), prefix+":{g}:record", "until").Val(); until != "" {
		t.Errorf("the record still has a deadline, %s", until)
	}
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("renew: %v", err)
	}
}

// What a candidate or an operator wrote comes back, also from the history.
func TestOddTexts(t *testing.T) {
	t.Parallel()
	s, _, _ := one(t)
	c := baton.Candidate{NodeID: "n", InstanceID: "i", Metadata: map[string]string{"nul": "a\x00b", "quote": `"'\`, "": "ünï\u2028\x7f", "{}": "[]"}}
	l, err := s.Acquire(t.Context(), "g", c, time.Minute)
	if err == nil {
		l, err = s.Renew(t.Context(), l.ID(), time.Minute)
	}
	if err != nil || !maps.Equal(l.Metadata, c.Metadata) {
		t.Errorf("metadata %q, %v: want %q", l.Metadata, err, c.Metadata)
	}
	note := "a\x00b \"'\\ ü\u2028"
	if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown, Note: note + "\xff"}); err != nil {
		t.Fatal(err)
	}
	drill.Release(t, s, l)
	past, err := s.History(t.Context(), "g")
	if err != nil || len(past) != 1 || past[0].Note != note+"\uFFFD" {
		t.Errorf("history: %+v, %v: want the note %q", past, err, note)
	}
	if none := drill.Lead(t, s, "g", "i-2", time.Minute); len(none.Metadata) != 0 {
		t.Errorf("metadata %q of one that has none", none.Metadata)
	}
}

// Redis forgets scripts when it is told to, and when it restarts.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	s, rdb, _ := one(t)
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	for range 2 {
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Errorf("renew: %v", err)
		}
	}
}

// twice sends every script twice, as a client does that repeats what was not
// answered. What is to happen in between happens once.
type twice struct {
	hook
	between func()
}

func (h *twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			if err := next(ctx, redis.NewCmd(ctx, cmd.Args()...)); err != nil {
				cmd.SetErr(err) // the script is not known: it is sent whole, twice again
				return err
			}
			if between := h.between; between != nil {
				h.between = nil
				between()
			}
		}
		return next(ctx, cmd)
	}
}

func TestRequestsThatComeTwiceAreAnsweredAsOne(t *testing.T) {
	t.Parallel()
	_, rdb, _ := one(t)
	rdb.AddHook(&twice{})
	s := open(t, redisstore.Config{Client: rdb, Prefix: freshPrefix()})
	drill.Release(t, s, drill.Lead(t, s, "g", "i-1", time.Minute))
	l := drill.Lead(t, s, "g", "i-2", time.Minute)
	if l.Term != 2 {
		t.Errorf("term %d: want 2", l.Term)
	}
	if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true}); err != nil {
		t.Errorf("end: %v", err)
	}
	g, err := s.PutGroup(t.Context(), baton.Group{ID: "g", AllowedNodes: []string{"a"}})
	if err != nil || g.Version != 1 {
		t.Errorf("put: %+v, %v", g, err)
	}
	if err := s.DeleteGroup(t.Context(), "g"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := s.DeleteGroup(t.Context(), "g"); !errors.Is(err, baton.ErrNotFound) {
		t.Errorf("delete again: %v", err)
	}
}

// A group that is used again is not deleted by a copy of the request that deleted
// it before.
func TestACopyOfADeletionDeletesNothing(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(t *testing.T, s *redisstore.Store){
		"led": func(t *testing.T, s *redisstore.Store) { drill.Lead(t, s, "g", "i-2", time.Minute) },
		"registered": func(t *testing.T, s *redisstore.Store) {
			if _, err := s.PutGroup(t.Context(), baton.Group{ID: "g", AllowedNodes: []string{"a"}}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other, rdb, prefix := one(t)
			repeats := &twice{}
			rdb.AddHook(repeats)
			s := open(t, redisstore.Config{Client: rdb, Prefix: prefix})
			drill.Release(t, s, drill.Lead(t, s, "g", "i-1", time.Minute))
			repeats.between = func() { use(t, other) }
			if err := s.DeleteGroup(t.Context(), "g"); err != nil {
				t.Errorf("delete: %v", err)
			}
			if _, err := other.Group(t.Context(), "g"); err != nil {
				t.Errorf("the group that was made since: %v", err)
			}
		})
	}
}

func TestStoresOnTheClientOfAnother(t *testing.T) {
	t.Parallel()
	_, rdb, prefix := one(t)
	a, err := redisstore.New(t.Context(), redisstore.Config{Client: rdb, Prefix: prefix + "-a", Timeout: drill.Unhurried})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, redisstore.Config{Client: rdb, Prefix: prefix + "-b"})
	l := drill.Lead(t, a, "g", "i-1", time.Minute)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(t.Context(), "g"); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("get after close: %v", err)
	}
	if l := drill.Lead(t, b, "g", "i-2", time.Minute); l.Term != 1 {
		t.Errorf("the other prefix begins at term %d", l.Term)
	}
	again := open(t, redisstore.Config{Client: rdb, Prefix: prefix + "-a"})
	if _, err := again.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renewal by another store on the same prefix: %v", err)
	}
}

// What is in docs/stores/redis.md is enough for a user, and no less is.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Redis)
	rdb, cfg := connect(t, server.URL), configOf(t, server.URL)
	for _, rules := range []string{
		"ann on >secret ~baton:* &baton:* +@read +@write +@scripting +@pubsub +@connection +info +time +config|get",
		"bob on >secret ~baton:* &baton:* +@read +@write +@scripting +@pubsub +@connection +info +time",
		"eve on >secret ~baton:* &baton:* +@read +@connection +info",
	} {
		if err := rdb.Do(t.Context(), acl(rules)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user, password string) redisstore.Config {
		c := cfg
		c.Username, c.Password, c.Timeout = user, password, drill.Unhurried
		return c
	}
	for _, user := range []string{"ann", "bob"} {
		s := open(t, as(user, "secret"))
		l := drill.Lead(t, s, user, "i-1", time.Minute)
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Errorf("renew: %v", err)
		}
		called := make(chan error, 1)
		go func() {
			called <- s.Await(t.Context(), user, baton.Candidate{NodeID: "next", InstanceID: "i-2"})
		}()
		drill.Release(t, s, l)
		if err := <-called; err != nil {
			t.Errorf("await: %v", err)
		}
		if _, err := s.Groups(t.Context()); err != nil {
			t.Errorf("groups: %v", err)
		}
		durable := s.Guarantees().DurableTerms
		told := slices.ContainsFunc(s.Guarantees().Caveats, func(c string) bool { return strings.Contains(c, "unknown") })
		if durable != (user == "ann") || told != (user == "bob") {
			t.Errorf("to %s terms are durable: %t; what is not known is told: %t", user, durable, told)
		}
	}
	eve := open(t, as("eve", "secret"))
	if _, err := eve.Get(t.Context(), "g"); !errors.Is(err, baton.ErrNotAllowed) {
		t.Errorf("a user without scripts: %v, want ErrNotAllowed", err)
	}
	elsewhere := as("ann", "secret")
	elsewhere.Prefix = "other"
	if _, err := open(t, elsewhere).Get(t.Context(), "g"); !errors.Is(err, baton.ErrNotAllowed) {
		t.Errorf("a prefix that is not hers: %v, want ErrNotAllowed", err)
	}
	for what, c := range map[string]redisstore.Config{
		"a wrong password": as("ann", "guessed"), "a user who is not known": as("zoe", "guessed"),
		"a wrong password of the default user": as("", "guessed"), "no password": as("", ""),
	} {
		_, err := redisstore.New(t.Context(), c)
		if !errors.Is(err, baton.ErrUnauthenticated) || errors.Is(err, baton.ErrUnavailable) || strings.Contains(err.Error(), "guessed") {
			t.Errorf("%s: %v, want ErrUnauthenticated that does not show it", what, err)
		}
	}
}

func acl(rules string) []any {
	args := []any{"ACL", "SETUSER"}
	for _, r := range strings.Fields(rules) {
		args = append(args, r)
	}
	return args
}

// What Redis is set to decides what the store promises.
func TestGuaranteesFollowTheSettings(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Redis)
	rdb, cfg := connect(t, server.URL), configOf(t, server.URL)
	for _, tt := range []struct {
		set     []string
		durable bool
		says    string // of the last caveat
	}{
		{nil, true, "sets terms back"},
		{[]string{"maxmemory-policy", "allkeys-lru"}, true, "sets terms back"}, // no limit, no eviction
		{[]string{"maxmemory", "100mb"}, true, "maxmemory-policy allkeys-lru"},
		{[]string{"maxmemory-policy", "volatile-ttl"}, true, "sets terms back"}, // nothing that matters has an expiry
		{[]string{"appendfsync", "everysec"}, false, "appendfsync everysec"},
		{[]string{"appendonly", "no"}, false, "appendonly no"},
	} {
		if tt.set != nil {
			if err := rdb.ConfigSet(t.Context(), tt.set[0], tt.set[1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
		g := open(t, cfg).Guarantees()
		if last := g.Caveats[len(g.Caveats)-1]; g.DurableTerms != tt.durable || !strings.Contains(last, tt.says) {
			t.Errorf("after %v terms are durable: %t, and the last caveat is %q", tt.set, g.DurableTerms, last)
		}
	}
}

// aged is a Redis that says it is of another version.
type aged struct{ hook }

func (*aged) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal(strings.Replace(info.Val(), "redis_version:", "redis_version:5.", 1))
		}
		return err
	}
}

func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	master := impatient(t)
	replica := testserver.Start(t, testserver.Redis)
	follow(t, replica, master)
	clustered := testserver.Start(t, testserver.Redis, testserver.Setting("cluster-enabled", "yes"))
	old := connect(t, master.URL)
	old.AddHook(&aged{})
	for what, tt := range map[string]struct {
		cfg  redisstore.Config
		says string
	}{
		"a replica":             {configOf(t, replica.URL), "is a replica"},
		"a part of a cluster":   {configOf(t, clustered.URL), "cluster=true"},
		"one that is too old":   {redisstore.Config{Client: old}, "too old: want 6.0"},
		"one that is not there": {redisstore.Config{Addresses: []string{nobody(t)}}, "refused"},
	} {
		tt.cfg.Timeout = drill.Unhurried
		s, err := redisstore.New(t.Context(), tt.cfg)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want an error that says %q", what, err, tt.says)
		}
		if errors.Is(err, baton.ErrUnavailable) != (what == "one that is not there") {
			t.Errorf("%s: %v: unavailable is what comes back by itself", what, err)
		}
	}
}

// nobody is an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// A Redis that is full refuses to grant and to renew, and nothing is half done.
func TestRedisThatIsFull(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Redis)
	rdb, s := connect(t, server.URL), open(t, configOf(t, server.URL))
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), "h", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute); !errors.Is(err, baton.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("acquire: %v, want ErrUnavailable and why", err)
	}
	if err := s.Release(t.Context(), l.ID()); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("release: %v, want ErrUnavailable", err)
	}
	if now, err := s.Get(t.Context(), "g"); err != nil || now.ID() != l.ID() {
		t.Errorf("get: %+v, %v: want the lease as it was", now, err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	drill.Release(t, s, l)
}
