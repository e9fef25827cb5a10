package httpfence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"baton"
	"baton/fence"
)

const (
	// ActHeader asks for something that the ledger itself does.
	ActHeader = "Baton-Fence-Act"
	// RefusedHeader names the kind of a refusal. It tells our 412 from a handler's own.
	RefusedHeader = "Baton-Fence-Refused"
)

// The values of ActHeader.
const (
	ActAdopt   = "adopt"
	ActAdvance = "advance"
	ActRead    = "read"
)

// The values of RefusedHeader, and of "error" in the body.
const (
	codeStale       = "STALE"
	codeRepeat      = "REPEAT"
	codeNotAdopted  = "NOT_ADOPTED"
	codeWrongGroup  = "WRONG_GROUP"
	codeInvalid     = "INVALID_ARGUMENT"
	codeUnavailable = "BACKEND_UNAVAILABLE"
)

// Record is a fence.Record in JSON.
type Record struct {
	Group      string     `json:"group_id"`
	Term       baton.Term `json:"term"`
	InstanceID string     `json:"instance_id"`
	LastSeq    int64      `json:"last_seq"`
}

// refusalBody is the body of every answer that WriteError gives.
type refusalBody struct {
	Error    string  `json:"error"`
	Message  string  `json:"message"`
	Resource string  `json:"resource,omitempty"`
	Held     *Record `json:"held,omitempty"`
	// Field and Want are those of a *baton.InvalidArgumentError.
	Field string `json:"field,omitempty"`
	Want  string `json:"want,omitempty"`
}

// WriteError answers with a ledger's error: 412 for a refusal, with the highest
// leadership seen; 400 for a claim that makes no sense; 503 for everything else.
func WriteError(w http.ResponseWriter, err error) {
	body := refusalBody{Error: codeUnavailable, Message: err.Error()}
	status := http.StatusPreconditionFailed
	held := func(code, resource string, r fence.Record) {
		body.Error, body.Resource, body.Held = code, resource, (*Record)(&r)
		if r.Adopted() {
			w.Header().Set(fence.Header, formatRecord(r))
		}
	}
	var (
		stale      *fence.StaleError
		repeat     *fence.RepeatError
		notAdopted *fence.NotAdoptedError
		wrongGroup *fence.WrongGroupError
		invalid    *baton.InvalidArgumentError
	)
	switch {
	case errors.As(err, &stale):
		held(codeStale, stale.Resource, stale.Held)
	case errors.As(err, &repeat):
		held(codeRepeat, repeat.Resource, repeat.Held)
	case errors.As(err, &notAdopted):
		held(codeNotAdopted, notAdopted.Resource, notAdopted.Held)
	case errors.As(err, &wrongGroup):
		held(codeWrongGroup, wrongGroup.Resource, wrongGroup.Held)
	case errors.As(err, &invalid):
		status = http.StatusBadRequest
		body.Error, body.Field, body.Want = codeInvalid, invalid.Field, invalid.Want
	default:
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set(RefusedHeader, body.Error)
	writeJSON(w, status, body)
}

// formatRecord writes what the ledger holds in the form of a claim.
func formatRecord(r fence.Record) string {
	c := fence.Unordered(r.Token())
	if r.LastSeq > 0 {
		c = fence.Ordered(r.Token(), r.LastSeq)
	}
	return fence.FormatHeader(c)
}

// WriteRecord answers with what the ledger holds.
func WriteRecord(w http.ResponseWriter, r fence.Record) { writeJSON(w, http.StatusOK, Record(r)) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

const maxAnswer = 64 << 10

// ReadError returns the error that WriteError wrote, as far as it is an answer
// to the claim: a refusal, or *baton.InvalidArgumentError. It is nil for every
// other response, whose body it leaves unread.
func ReadError(resp *http.Response, offered fence.Claim) error {
	code := resp.Header.Get(RefusedHeader)
	if code == "" || code == codeUnavailable {
		return nil
	}
	var body refusalBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&body); err != nil {
		return fmt.Errorf("read why the write was refused as %s: %w", code, err)
	}
	var held fence.Record
	if body.Held != nil {
		held = fence.Record(*body.Held)
	}
	switch code {
	case codeStale:
		return &fence.StaleError{Resource: body.Resource, Offered: offered, Held: held}
	case codeRepeat:
		return &fence.RepeatError{Resource: body.Resource, Offered: offered, Held: held}
	case codeNotAdopted:
		return &fence.NotAdoptedError{Resource: body.Resource, Offered: offered, Held: held}
	case codeWrongGroup:
		return &fence.WrongGroupError{Resource: body.Resource, Offered: offered, Held: held}
	case codeInvalid:
		return &baton.InvalidArgumentError{Field: body.Field, Value: body.Message, Want: body.Want}
	}
	return fmt.Errorf("write refused for a reason that is not known here: %s: %s", code, body.Message)
}

// ReadClaim returns the claim that a request carries. None, or more than one,
// is a *baton.InvalidArgumentError, as is one that does not parse.
func ReadClaim(r *http.Request) (fence.Claim, error) {
	values := r.Header.Values(fence.Header)
	if len(values) != 1 {
		return fence.Claim{}, &baton.InvalidArgumentError{Field: fence.Header, Value: fmt.Sprintf("given %d times", len(values)), Want: "one header"}
	}
	return fence.ParseHeader(values[0])
}
