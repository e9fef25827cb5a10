package fenced

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"baton"
	"baton/fence"
	"baton/fence/httpfence"
	"baton/fenced/fencedclient"
)

// Server is the HTTP interface of a Store.
type Server struct {
	store   *Store
	log     *slog.Logger
	timeout time.Duration
	metrics *metrics
	mux     *http.ServeMux
}

// NewServer returns the interface of a store. Requests that take longer than
// timeout are given up.
func NewServer(store *Store, log *slog.Logger, timeout time.Duration) *Server {
	s := &Server{store: store, log: log, timeout: timeout, metrics: newMetrics(store.fencing), mux: http.NewServeMux()}
	const r = "/v1/resources/{resource}"
	s.mux.HandleFunc("POST "+r+"/adopt", s.write("adopt", s.adopt))
	s.mux.HandleFunc("POST "+r+"/advance", s.write("advance", s.advance))
	s.mux.HandleFunc("POST "+r+"/ticks", s.write(fencedclient.KindTick, s.tick))
	s.mux.HandleFunc("POST "+r+"/sequence", s.write(fencedclient.KindSequence, s.sequence))
	s.mux.HandleFunc("PUT "+r+"/checkpoint", s.write(fencedclient.KindCheckpoint, s.saveCheckpoint))
	s.mux.HandleFunc("GET "+r+"/checkpoint", s.read("read checkpoint", func(ctx context.Context, r *http.Request) (any, error) {
		return s.store.Checkpoint(ctx, r.PathValue("resource"))
	}))
	s.mux.HandleFunc("GET "+r+"/writes", s.read("list writes", s.writesAfter))
	s.mux.HandleFunc("GET "+r+"/writes/{seq}", s.read("read writes", s.writes))
	s.mux.HandleFunc("GET "+r, s.read("read record", func(ctx context.Context, r *http.Request) (any, error) {
		record, err := s.store.ledger.Read(ctx, r.PathValue("resource"))
		return httpfence.Record(record), err
	}))
	s.mux.HandleFunc("GET /v1/audit", s.readWithin(auditTime, "audit", func(ctx context.Context, r *http.Request) (any, error) {
		return s.store.Audit(ctx, r.URL.Query().Get("resource"))
	}))
	s.mux.HandleFunc("GET /healthz", s.read("healthz", s.health))
	s.mux.Handle("GET /metrics", s.metrics.handler())
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// request is a write with all that it was sent with. It was read in full before
// the ledger is asked, so that a client that freezes holds nobody up.
type request struct {
	resource string
	claim    fence.Claim
	body     []byte
}

// decode reads the body as one JSON value.
func (r *request) decode(v any) error {
	if err := json.Unmarshal(r.body, v); err != nil {
		return &baton.InvalidArgumentError{Field: "body", Value: err.Error(), Want: "JSON as documented"}
	}
	return nil
}

func (s *Server) write(kind string, do func(ctx context.Context, r *request) (answer any, err error)) http.HandlerFunc {
	limit := int64(fencedclient.MaxBody)
	if kind == fencedclient.KindCheckpoint {
		limit = fencedclient.MaxCheckpoint
	}
	return func(w http.ResponseWriter, r *http.Request) {
		defer s.metrics.observe(kind, time.Now())
		claim, err := httpfence.ReadClaim(r)
		req := &request{resource: r.PathValue("resource"), claim: claim}
		if err == nil {
			req.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		}
		var answer any
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
			defer cancel()
			answer, err = do(ctx, req)
		}
		if err != nil {
			s.reject(kind, req, err)
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

// accepted counts a write that was let in.
func (s *Server) accepted(kind string, r *request, a Accepted) {
	s.metrics.accepted.WithLabelValues(kind).Inc()
	if a.Fell {
		s.metrics.splitBrain.Inc()
		s.log.Error("split brain: accepted a write of a leader of the past", "resource", r.resource, "kind", kind, "token", r.claim.Token().String())
	}
}

// reasons are the kinds of refusal by the name they are counted under.
var reasons = []struct {
	name string
	err  error
}{
	{"stale", fence.ErrStale},
	{"repeat", fence.ErrRepeat},
	{"not_adopted", fence.ErrNotAdopted},
	{"wrong_group", fence.ErrWrongGroup},
	{"invalid", baton.ErrInvalidArgument},
}

// reject counts and logs a write that was not let in, or failed.
func (s *Server) reject(kind string, r *request, err error) {
	attrs := []any{"resource", r.resource, "kind", kind, "token", r.claim.Token().String()}
	if seq, ok := r.claim.Seq(); ok {
		attrs = append(attrs, "seq", seq)
	}
	for _, reason := range reasons {
		if !errors.Is(err, reason.err) {
			continue
		}
		s.metrics.rejected.WithLabelValues(reason.name).Inc()
		attrs = append(attrs, "reason", reason.name)
		if held, ok := heldBy(err); ok {
			attrs = append(attrs, "held_by", held.Token().String(), "held_last_seq", held.LastSeq)
		} else {
			attrs = append(attrs, "error", err)
		}
		s.log.Warn("write rejected", attrs...)
		return
	}
	s.log.Error("write failed", append(attrs, "error", err)...)
}

// heldBy is what the ledger held when it refused.
func heldBy(err error) (fence.Record, bool) {
	var (
		stale      *fence.StaleError
		repeat     *fence.RepeatError
		notAdopted *fence.NotAdoptedError
		wrongGroup *fence.WrongGroupError
	)
	switch {
	case errors.As(err, &stale):
		return stale.Held, true
	case errors.As(err, &repeat):
		return repeat.Held, true
	case errors.As(err, &notAdopted):
		return notAdopted.Held, true
	case errors.As(err, &wrongGroup):
		return wrongGroup.Held, true
	}
	return fence.Record{}, false
}

func (s *Server) adopt(ctx context.Context, r *request) (any, error) {
	record, err := s.store.ledger.Adopt(ctx, r.resource, r.claim.Token())
	if err == nil {
		s.log.Info("resource adopted", "resource", r.resource, "token", record.Token().String(), "last_seq", record.LastSeq)
	}
	return httpfence.Record(record), err
}

func (s *Server) advance(ctx context.Context, r *request) (any, error) {
	if err := s.store.ledger.Advance(ctx, r.resource, r.claim); err != nil {
		return nil, err
	}
	t := r.claim.Token()
	seq, _ := r.claim.Seq()
	return httpfence.Record{Group: t.Group, Term: t.Term, InstanceID: t.InstanceID, LastSeq: seq}, nil
}

const maxNote = 4 << 10

func (s *Server) tick(ctx context.Context, r *request) (any, error) {
	var t fencedclient.Tick
	if err := r.decode(&t); err != nil {
		return nil, err
	}
	if len(t.Note) > maxNote || !utf8.ValidString(t.Note) || strings.ContainsRune(t.Note, 0) {
		return nil, &baton.InvalidArgumentError{Field: "note", Value: t.Note, Want: fmt.Sprintf("text of at most %d bytes", maxNote)}
	}
	a, err := s.store.Tick(ctx, r.resource, r.claim, t)
	if err != nil {
		return nil, err
	}
	s.accepted(fencedclient.KindTick, r, a)
	return struct{}{}, nil
}

func (s *Server) sequence(ctx context.Context, r *request) (any, error) {
	var c fencedclient.Count
	if err := r.decode(&c); err != nil {
		return nil, err
	}
	numbers, a, err := s.store.Numbers(ctx, r.resource, r.claim, c.Count)
	if err != nil {
		return nil, err
	}
	s.accepted(fencedclient.KindSequence, r, a)
	return numbers, nil
}

func (s *Server) saveCheckpoint(ctx context.Context, r *request) (any, error) {
	var saved fencedclient.Saved
	if err := r.decode(&saved); err != nil {
		return nil, err
	}
	if saved.Data == nil || !utf8.Valid(saved.Data) {
		return nil, &baton.InvalidArgumentError{Field: "data", Value: "", Want: "any JSON"}
	}
	if u := saved.Covers; u != nil && (u.First < 1 || u.Last < u.First) {
		return nil, &baton.InvalidArgumentError{Field: "covers", Value: *u, Want: "pieces of work from first to last, counted from 1"}
	}
	a, err := s.store.SaveCheckpoint(ctx, r.resource, r.claim, saved)
	if err != nil {
		return nil, err
	}
	s.accepted(fencedclient.KindCheckpoint, r, a)
	return struct{}{}, nil
}

func (s *Server) writes(ctx context.Context, r *http.Request) (any, error) {
	seq, err := number("seq", r.PathValue("seq"), 1, fence.MaxSeq)
	if err != nil {
		return nil, err
	}
	found, err := s.store.Writes(ctx, r.PathValue("resource"), seq)
	return fencedclient.Writes{Writes: found}, err
}

func (s *Server) writesAfter(ctx context.Context, r *http.Request) (any, error) {
	after, limit := int64(0), int64(maxPage)
	var err error
	if q := r.URL.Query().Get("after"); q != "" {
		if after, err = number("after", q, 0, math.MaxInt64); err != nil {
			return nil, err
		}
	}
	if q := r.URL.Query().Get("limit"); q != "" {
		if limit, err = number("limit", q, 1, maxPage); err != nil {
			return nil, err
		}
	}
	found, err := s.store.WritesAfter(ctx, r.PathValue("resource"), after, int(limit))
	return fencedclient.Writes{Writes: found}, err
}

func number(field, text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, &baton.InvalidArgumentError{Field: field, Value: text, Want: fmt.Sprintf("%d to %d", least, most)}
	}
	return n, nil
}

func (s *Server) health(ctx context.Context, _ *http.Request) (any, error) {
	h := fencedclient.Health{Status: "ok", Database: s.store.kind, Fencing: s.store.fencing}
	if !h.Fencing {
		h.Message = fencingOff
	}
	return h, s.store.db.PingContext(ctx)
}

// auditTime is what a look at millions of writes may take.
const auditTime = 5 * time.Minute

func (s *Server) read(operation string, do func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return s.readWithin(s.timeout, operation, do)
}

func (s *Server) readWithin(limit time.Duration, operation string, do func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer s.metrics.observe(operation, time.Now())
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		answer, err := do(ctx, r)
		if err != nil {
			s.log.Warn("request failed", "operation", operation, "error", err)
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

// writeError answers in httpfence's form, and for what that does not know, like it.
func writeError(w http.ResponseWriter, err error) {
	var (
		kind     baton.ErrorKind
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &tooLarge):
		kind, _ = baton.KindOf(baton.ErrTooLarge)
	case errors.Is(err, baton.ErrNotFound):
		kind, _ = baton.KindOf(baton.ErrNotFound)
	default:
		httpfence.WriteError(w, err)
		return
	}
	writeJSON(w, kind.HTTP, map[string]string{"error": kind.Code, "message": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}
