package raftstore

import (
	"errors"
	"fmt"
	"time"

	"baton"
)

// wireError is an error on its way from the leader to another server: its
// kind, its text, and the facts that the root package's types carry.
type wireError struct {
	Code    string
	Text    string
	Serving bool // false: notServing

	Held       *baton.HeldError            `json:",omitempty"`
	NotLeader  *baton.NotLeaderError       `json:",omitempty"`
	InvalidTTL *baton.InvalidTTLError      `json:",omitempty"`
	Invalid    *baton.InvalidArgumentError `json:",omitempty"`
	Printed    string                      `json:",omitempty"` // the value in Invalid, unless it is a string
	Conflict   *baton.ConflictError        `json:",omitempty"`
	RetryAfter time.Duration               `json:",omitempty"`
}

func wireErrorOf(err error) *wireError {
	kind, _ := baton.KindOf(err)
	w := &wireError{Code: kind.Code, Text: err.Error(), Serving: true}
	var elsewhere *notServing
	w.Serving = !errors.As(err, &elsewhere)
	errors.As(err, &w.Held)
	errors.As(err, &w.NotLeader)
	errors.As(err, &w.InvalidTTL)
	if errors.As(err, &w.Invalid) {
		if _, ok := w.Invalid.Value.(string); !ok {
			looks := *w.Invalid
			looks.Value, w.Printed = nil, fmt.Sprint(w.Invalid.Value)
			w.Invalid = &looks
		}
	}
	errors.As(err, &w.Conflict)
	var unavailable *baton.UnavailableError
	if errors.As(err, &unavailable) {
		w.RetryAfter = unavailable.RetryAfter
	}
	return w
}

// err is the error again. What is of no known kind leaves the outcome unknown.
func (w *wireError) err(op string) error {
	switch {
	case w.Held != nil:
		return w.Held
	case w.NotLeader != nil:
		return w.NotLeader
	case w.InvalidTTL != nil:
		return w.InvalidTTL
	case w.Invalid != nil:
		if w.Printed != "" {
			w.Invalid.Value = printed(w.Printed)
		}
		return w.Invalid
	case w.Conflict != nil:
		return w.Conflict
	}
	if kind, ok := baton.KindByCode(w.Code); ok && !errors.Is(kind.Err, baton.ErrUnavailable) {
		return fmt.Errorf("%s: %w", w.Text, kind.Err)
	}
	var err error = &baton.UnavailableError{Op: op, RetryAfter: w.RetryAfter, Err: errors.New(w.Text)}
	if !w.Serving {
		err = &notServing{err}
	}
	return err
}

// printed is a value of which only its looks have come along.
type printed string
