package fenced_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/fenced/fencedclient"
)

// ticks is the program as a ledger with a log of ticks beside it.
type ticks struct{ *fencedclient.Client }

func (s ticks) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	if between != nil {
		between()
	}
	return s.Tick(ctx, resource, c, fencedclient.Tick{Note: value})
}

func (s ticks) Log(ctx context.Context, resource string) ([]fencetest.Entry, error) {
	record, err := s.Read(ctx, resource)
	if err != nil {
		return nil, err
	}
	var log []fencetest.Entry
	after := int64(0)
	for {
		page, err := s.Writes(ctx, resource, after)
		if err != nil || len(page) == 0 {
			return log, err
		}
		for _, w := range page {
			t := baton.Token{Group: record.Group, Term: w.Term, InstanceID: w.InstanceID}
			c := fence.Unordered(t)
			if w.Seq > 0 {
				c = fence.Ordered(t, w.Seq)
			}
			log = append(log, fencetest.Entry{Claim: c, Value: w.Tick.Note})
			after = w.ID
		}
	}
}

func TestConformance(t *testing.T) {
	eachDatabase(t, func(t *testing.T, open func(testing.TB) string) {
		fencetest.Run(t, fencetest.Options{Writes: 1000}, func(t *testing.T) fencetest.Subject {
			p := start(t, "-db", open(t))
			t.Cleanup(func() {
				if a, err := p.client.Audit(context.WithoutCancel(t.Context()), ""); err != nil || !a.OK {
					t.Errorf("audit: %+v, %v", a, err)
				}
				if n := p.metric("baton_split_brain_detected_total"); n != "0" {
					t.Errorf("%s split brains were detected", n)
				}
			})
			return ticks{p.client}
		})
	})
}

// A leader's day: it takes over, works, and is taken over from.
func TestLeaders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, open func(testing.TB) string) {
		p := start(t, "-db", open(t))
		a := lead(t, token(5, "a"))
		jobs, err := p.client.Take(a.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Checkpoint(a.Context()); !errors.Is(err, baton.ErrNotFound) {
			t.Errorf("the first checkpoint: got %v, want none", err)
		}
		if n, err := jobs.Tick(a.Context(), fencedclient.Tick{ScheduledForMS: 1000, Note: "first"}); n != 1 || err != nil {
			t.Errorf("tick: %d, %v, want 1", n, err)
		}
		if n, err := jobs.Next(a.Context(), 100); n != (fencedclient.Numbers{First: 2, Last: 101}) || err != nil {
			t.Errorf("numbers: %v, %v, want 2 to 101", n, err)
		}
		if n, err := jobs.Save(a.Context(), json.RawMessage(`{"cursor": 7}`)); n != 102 || err != nil {
			t.Errorf("save: %d, %v, want 102", n, err)
		}

		b := lead(t, token(6, "b"))
		taken, err := p.client.Take(b.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		point, err := taken.Checkpoint(b.Context())
		if err != nil || string(point.Data) != `{"cursor":7}` || point.Term != 5 || point.InstanceID != "a" || point.Seq != 102 {
			t.Errorf("checkpoint: %+v, %v", point, err)
		}
		if n, err := taken.Next(b.Context(), 10); n != (fencedclient.Numbers{First: 103, Last: 112}) || err != nil {
			t.Errorf("numbers: %v, %v, want 103 to 112", n, err)
		}

		// The past wakes up.
		_, err = jobs.Next(a.Context(), 1)
		var stale *fence.StaleError
		if !errors.As(err, &stale) || stale.Held.Token() != b.Token() || stale.Resource != "jobs" {
			t.Errorf("the past asks for numbers: got %v, want it refused in favour of %v", err, b.Token())
		}
		if a.Valid() || !errors.Is(a.Cause(), fence.ErrStale) {
			t.Errorf("the past still leads: %v", a.Cause())
		}
		for op, err := range map[string]error{
			"tick":    p.client.Tick(t.Context(), "jobs", fence.Unordered(a.Token()), fencedclient.Tick{}),
			"save":    p.client.SaveCheckpoint(t.Context(), "jobs", fence.Unordered(a.Token()), fencedclient.Saved{Data: json.RawMessage(`{}`)}),
			"advance": p.client.Advance(t.Context(), "jobs", fence.Ordered(a.Token(), 500)),
			"numbers": func() error {
				_, err := p.client.Numbers(t.Context(), "jobs", fence.Unordered(a.Token()), 5)
				return err
			}(),
			"take back": func() error { _, err := p.client.Adopt(t.Context(), "jobs", a.Token()); return err }(),
		} {
			if !errors.Is(err, fence.ErrStale) {
				t.Errorf("%s by the past: got %v, want stale", op, err)
			}
		}
		if !b.Valid() {
			t.Errorf("the present leadership ended: %v", b.Cause())
		}

		if n := p.metric(`baton_fence_rejections_total{reason="stale"}`); n != "6" {
			t.Errorf("%s rejections were counted, want 6", n)
		}
		if n := p.metric(`baton_fence_accepted_total{kind="sequence"}`); n != "2" {
			t.Errorf("%s accepted sequences were counted, want 2", n)
		}
		for _, want := range []string{`msg="write rejected"`, "token=payments/5/a", "seq=103", "reason=stale", "held_by=payments/6/b", "held_last_seq=112"} {
			p.says(want)
		}
		if a, err := p.client.Audit(t.Context(), ""); err != nil || !a.OK || a.Writes != 4 || len(a.Steps) != 0 {
			t.Errorf("audit: %+v, %v, want 4 writes and nothing to complain about", a, err)
		}
	})
}

// The same story without fencing: numbers are given out twice, and the audit,
// which is the same, shows it.
func TestFencingOff(t *testing.T) {
	eachDatabase(t, func(t *testing.T, open func(testing.TB) string) {
		p := start(t, "-db", open(t), "-fencing=off")
		ctx := t.Context()
		a, b := lead(t, token(5, "a")), lead(t, token(6, "b"))
		old, err := p.client.Take(a.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := old.Next(a.Context(), 10); err != nil {
			t.Fatal(err)
		}
		if h, err := p.client.Health(ctx); err != nil || h.Fencing || !strings.Contains(h.Message, "FENCING IS OFF") {
			t.Errorf("health: %+v, %v, want it to say that fencing is off", h, err)
		}
		p.says("FENCING IS OFF")
		if au, err := p.client.Audit(ctx, ""); err != nil || !au.OK {
			t.Errorf("audit before: %+v, %v", au, err)
		}

		present, err := p.client.Take(b.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		mine, err := present.Next(b.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		yours, err := old.Next(a.Context(), 10)
		if err != nil {
			t.Fatalf("the past was refused although fencing is off: %v", err)
		}
		if mine != yours {
			t.Errorf("got %v and %v, want the same numbers given out twice", mine, yours)
		}
		au, err := p.client.Audit(ctx, "")
		if err != nil || au.OK || au.TermsFell != 1 || au.SeqsFell != 1 || au.Duplicates != 10 || len(au.Steps) != 2 {
			t.Errorf("audit: %+v, %v, want a fall of the term, one of the number, and 10 duplicates", au, err)
		}
		if len(au.Steps) == 2 {
			s := au.Steps[0]
			if s.Term != 5 || s.PreviousTerm != 6 || s.Resource != "jobs" || s.Kind != fencedclient.KindSequence {
				t.Errorf("step: %+v", s)
			}
			if s := au.Steps[1]; s.Seq != 20 || s.PreviousSeq != 20 || s.Count != 10 {
				t.Errorf("step: %+v", s)
			}
		}
		if au, err := p.client.Audit(ctx, "another"); err != nil || !au.OK || au.Writes != 0 {
			t.Errorf("audit of another resource: %+v, %v", au, err)
		}
		if n := p.metric("baton_split_brain_detected_total"); n != "1" {
			t.Errorf("%s split brains were detected, want 1", n)
		}
	})
}

// What was written without fencing, by whoever adopted nothing, does not keep a
// leader out once fencing is on.
func TestFencingOnAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, open func(testing.TB) string) {
		p := start(t, "-db", open(t), "-fencing=off")
		stray := token(5, "stray")
		if err := p.client.Tick(t.Context(), "jobs", fence.Unordered(stray), fencedclient.Tick{}); err != nil {
			t.Fatal(err)
		}
		p.kill()
		p.args = p.args[:2] // the database
		p.restart()
		if _, err := p.client.Adopt(t.Context(), "jobs", token(4, "past")); !errors.Is(err, fence.ErrStale) {
			t.Errorf("adopt by a leader of the past: got %v, want stale", err)
		}
		b := lead(t, token(6, "b"))
		jobs, err := p.client.Take(b.Context(), "jobs")
		if err != nil {
			t.Fatalf("adopt: %v", err)
		}
		if n, err := jobs.Next(b.Context(), 10); err != nil || n.First != 1 {
			t.Errorf("numbers: got %v (%v), want 1 to 10", n, err)
		}
	})
}

func TestBadInput(t *testing.T) {
	p := start(t, "-db", sqliteFile(t))
	const good = "group=payments, term=5, instance=a"
	if _, err := p.client.Adopt(t.Context(), "jobs", token(5, "a")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, method, path, claim, body string
		status                          int
		code                            string
	}{
		{"no claim", "POST", "jobs/ticks", "", "{}", 400, "INVALID_ARGUMENT"},
		{"malformed claim", "POST", "jobs/ticks", "token=5", "{}", 400, "INVALID_ARGUMENT"},
		{"token 0", "POST", "jobs/ticks", "group=payments, term=0, instance=a", "{}", 400, "INVALID_ARGUMENT"},
		{"token beyond the highest", "POST", "jobs/adopt", "group=payments, term=9007199254740992, instance=a", "", 400, "INVALID_ARGUMENT"},
		{"negative number", "POST", "jobs/ticks", good + ", seq=-4", "{}", 400, "INVALID_ARGUMENT"},
		{"number 0", "POST", "jobs/ticks", good + ", seq=0", "{}", 400, "INVALID_ARGUMENT"},
		{"huge number", "POST", "jobs/ticks", good + ", seq=9223372036854775808", "{}", 400, "INVALID_ARGUMENT"},
		{"other group", "POST", "jobs/ticks", "group=other, term=5, instance=a", "{}", 412, "WRONG_GROUP"},
		{"other instance", "POST", "jobs/ticks", "group=payments, term=5, instance=b", "{}", 412, "STALE"},
		{"not adopted", "POST", "jobs/ticks", "group=payments, term=6, instance=b", "{}", 412, "NOT_ADOPTED"},
		{"never adopted", "POST", "new/ticks", good, "{}", 412, "NOT_ADOPTED"},
		{"never adopted, numbers", "POST", "new/sequence", good, `{"count":1}`, 412, "NOT_ADOPTED"},
		{"bad resource", "POST", "a%20b/ticks", good, "{}", 400, "INVALID_ARGUMENT"},
		{"resource that is a path", "POST", "..%2f..%2fx/adopt", good, "", 400, "INVALID_ARGUMENT"},
		{"long resource", "POST", strings.Repeat("r", 129) + "/adopt", good, "", 400, "INVALID_ARGUMENT"},
		{"no JSON", "POST", "jobs/ticks", good, "tick!", 400, "INVALID_ARGUMENT"},
		{"two JSON values", "POST", "jobs/ticks", good, "{} {}", 400, "INVALID_ARGUMENT"},
		{"empty body", "POST", "jobs/ticks", good, "", 400, "INVALID_ARGUMENT"},
		{"a note with a zero", "POST", "jobs/ticks", good, `{"note":"a\u0000b"}`, 400, "INVALID_ARGUMENT"},
		{"a long note", "POST", "jobs/ticks", good, `{"note":"` + strings.Repeat("n", 5000) + `"}`, 400, "INVALID_ARGUMENT"},
		{"no numbers", "POST", "jobs/sequence", good, `{"count":0}`, 400, "INVALID_ARGUMENT"},
		{"fewer than no numbers", "POST", "jobs/sequence", good, `{"count":-5}`, 400, "INVALID_ARGUMENT"},
		{"too many numbers", "POST", "jobs/sequence", good, `{"count":1000001}`, 400, "INVALID_ARGUMENT"},
		{"count beyond integers", "POST", "jobs/sequence", good, `{"count":1e300}`, 400, "INVALID_ARGUMENT"},
		{"numbers below 1", "POST", "jobs/sequence", good + ", seq=3", `{"count":4}`, 400, "INVALID_ARGUMENT"},
		{"no checkpoint", "PUT", "jobs/checkpoint", good, `{}`, 400, "INVALID_ARGUMENT"},
		{"checkpoint that is no text", "PUT", "jobs/checkpoint", good, "{\"data\":\"\xff\"}", 400, "INVALID_ARGUMENT"},
		{"checkpoint of work before the first", "PUT", "jobs/checkpoint", good, `{"data":1,"covers":{"first":0,"last":3}}`, 400, "INVALID_ARGUMENT"},
		{"checkpoint of less than nothing", "PUT", "jobs/checkpoint", good, `{"data":1,"covers":{"first":3,"last":2}}`, 400, "INVALID_ARGUMENT"},
		{"advance without a number", "POST", "jobs/advance", good, "", 400, "INVALID_ARGUMENT"},
		{"large body", "POST", "jobs/ticks", good, `{"note":"` + strings.Repeat("n", 100_000) + `"}`, 413, "TOO_LARGE"},
		{"large checkpoint", "PUT", "jobs/checkpoint", good, `{"data":"` + strings.Repeat("n", 2<<20) + `"}`, 413, "TOO_LARGE"},
		{"no checkpoint yet", "GET", "jobs/checkpoint", "", "", 404, "NOT_FOUND"},
		{"bad number", "GET", "jobs/writes/x", "", "", 400, "INVALID_ARGUMENT"},
		{"bad page", "GET", "jobs/writes?after=-1", "", "", 400, "INVALID_ARGUMENT"},
		{"bad page size", "GET", "jobs/writes?limit=0", "", "", 400, "INVALID_ARGUMENT"},
		{"wrong method", "DELETE", "jobs/checkpoint", good, "", 405, ""},
		{"no such thing", "POST", "jobs/dance", good, "", 404, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, p.url+"/v1/resources/"+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.claim != "" {
			req.Header.Set(fence.Header, tt.claim)
		}
		resp, err := p.http.Do(req)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var body struct{ Error, Message string }
		_ = json.Unmarshal(text, &body)
		if resp.StatusCode != tt.status || body.Error != tt.code || (tt.code != "" && body.Message == "") {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, resp.StatusCode, text, tt.status, tt.code)
		}
	}
	if a, err := p.client.Audit(t.Context(), ""); err != nil || a.Writes != 0 {
		t.Errorf("audit: %+v, %v, want that nothing was written", a, err)
	}
	if r, err := p.client.Read(t.Context(), "jobs"); err != nil || r != (fence.Record{Group: "payments", Term: 5, InstanceID: "a"}) {
		t.Errorf("record: %v, %v, want it as it was adopted", r, err)
	}
	if r, err := p.client.Read(t.Context(), "new"); err != nil || r.Adopted() {
		t.Errorf("record of a resource that nobody adopted: %v, %v", r, err)
	}
	// What the client can see itself it does not send.
	big := json.RawMessage(`"` + strings.Repeat("n", 2<<20) + `"`)
	if err := p.client.SaveCheckpoint(t.Context(), "jobs", fence.Unordered(token(5, "a")), fencedclient.Saved{Data: big}); !errors.Is(err, baton.ErrTooLarge) {
		t.Errorf("large checkpoint: got %v, want too large", err)
	}
	if _, err := fencedclient.New("127.0.0.1:7410", nil); !errors.Is(err, baton.ErrInvalidArgument) {
		t.Errorf("client without a scheme: got %v", err)
	}
}

// Many callers at once leave the choice of numbers to the server.
func TestNumbersForMany(t *testing.T) {
	eachDatabase(t, func(t *testing.T, open func(testing.TB) string) {
		p := start(t, "-db", open(t))
		a := token(5, "a")
		if _, err := p.client.Adopt(t.Context(), "ids", a); err != nil {
			t.Fatal(err)
		}
		const callers, calls = 32, 10
		var (
			all   sync.WaitGroup
			mu    sync.Mutex
			given = make(map[int64]bool)
		)
		for i := range callers {
			all.Go(func() {
				last := int64(0)
				for range calls {
					count := int64(1 + i%3)
					n, err := p.client.Numbers(t.Context(), "ids", fence.Unordered(a), count)
					if err != nil || n.Last-n.First+1 != count || n.First <= last {
						t.Errorf("got %v, %v after %d, want %d more", n, err, last, count)
						return
					}
					last = n.Last
					mu.Lock()
					for k := n.First; k <= n.Last; k++ {
						if given[k] {
							t.Errorf("number %d was given out twice", k)
						}
						given[k] = true
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		au, err := p.client.Audit(t.Context(), "ids")
		if err != nil || !au.OK {
			t.Errorf("audit: %+v, %v", au, err)
		}
		t.Logf("%d calls in %d transactions", callers*calls, au.Writes)
		record, err := p.client.Read(t.Context(), "ids")
		if err != nil || record.LastSeq != int64(len(given)) {
			t.Errorf("the last number is %d, %v, want %d: each given out", record.LastSeq, err, len(given))
		}
		// Numbers that are used in part are refused as a whole.
		_, err = p.client.Numbers(t.Context(), "ids", fence.Ordered(a, record.LastSeq+5), 6)
		if !errors.Is(err, fence.ErrRepeat) {
			t.Errorf("numbers that overlap: got %v, want a repeat", err)
		}
		// Numbers chosen by a caller are not chosen again.
		if _, err := p.client.Numbers(t.Context(), "ids", fence.Ordered(a, 10_000), 1); err != nil {
			t.Fatal(err)
		}
		if n, err := p.client.Numbers(t.Context(), "ids", fence.Unordered(a), 1); err != nil || n.First != 10_001 {
			t.Errorf("got %v, %v, want 10001", n, err)
		}
	})
}

// Two processes on one database are one resource.
func TestReplicas(t *testing.T) {
	database := postgresSchema(t)
	replicas := []*process{start(t, "-db", database), start(t, "-db", database)}
	a, b := token(5, "a"), token(6, "b")
	if _, err := replicas[0].client.Adopt(t.Context(), "ids", a); err != nil {
		t.Fatal(err)
	}
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		given = make(map[int64]bool)
	)
	for i := range 16 {
		all.Go(func() {
			for range 10 {
				n, err := replicas[i%2].client.Numbers(t.Context(), "ids", fence.Unordered(a), 1)
				mu.Lock()
				if err != nil || given[n.First] {
					t.Errorf("got %v, %v, want a new number", n, err)
				}
				given[n.First] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if _, err := replicas[0].client.Adopt(t.Context(), "ids", b); err != nil {
		t.Fatal(err)
	}
	if err := replicas[1].client.Tick(t.Context(), "ids", fence.Unordered(a), fencedclient.Tick{}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the past at the other replica: got %v, want stale", err)
	}
	if au, err := replicas[1].client.Audit(t.Context(), "ids"); err != nil || !au.OK {
		t.Errorf("audit: %+v, %v", au, err)
	}
}

func TestWritesListsInPages(t *testing.T) {
	p := start(t, "-db", sqliteFile(t))
	l := lead(t, token(5, "a"))
	jobs, err := p.client.Take(l.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := jobs.Tick(l.Context(), fencedclient.Tick{ScheduledForMS: int64(i), Note: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := p.client.Writes(t.Context(), "jobs", 3)
	if err != nil || len(page) != 2 || page[0].Seq != 4 || page[0].Tick == nil || page[0].Tick.Note != "3" {
		t.Errorf("got %+v, %v, want the fourth and fifth tick", page, err)
	}
}
