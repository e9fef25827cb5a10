package fencedclient

import (
	"encoding/json"

	"baton"
)

// The kinds of accepted writes.
const (
	KindTick       = "tick"
	KindSequence   = "sequence"
	KindCheckpoint = "checkpoint"
)

const (
	// MaxCount bounds how many numbers one request takes.
	MaxCount = 1_000_000
	// MaxBody bounds the body of a request, but for checkpoints.
	MaxBody = 64 << 10
	// MaxCheckpoint bounds the body of a request that writes a checkpoint.
	MaxCheckpoint = 1 << 20
)

// Tick is one firing of the scheduler.
type Tick struct {
	// ScheduledForMS is when it was due, by the scheduler's clock.
	ScheduledForMS int64 `json:"scheduled_for_ms"`
	// Note is free text.
	Note string `json:"note,omitempty"`
}

// Count asks for numbers.
type Count struct {
	Count int64 `json:"count"`
}

// Numbers are consecutive, and nobody else's.
type Numbers struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Saved is the body of a request that writes a checkpoint.
type Saved struct {
	Data json.RawMessage `json:"data"`
	// Covers is the work that this checkpoint is for; none if it is nil.
	Covers *Units `json:"covers,omitempty"`
}

// Units are consecutive pieces of work, counted from 1.
type Units struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Checkpoint is where a leader was, with the leadership that wrote it.
type Checkpoint struct {
	Data       json.RawMessage `json:"data"`
	Term       baton.Term      `json:"term"`
	InstanceID string          `json:"instance_id"`
	// Seq is 0 if it was written without a number.
	Seq  int64 `json:"seq,omitempty"`
	AtMS int64 `json:"at_ms"`
}

// AcceptedWrite is one line of the append-only record of accepted writes.
type AcceptedWrite struct {
	ID         int64      `json:"id"`
	Resource   string     `json:"resource"`
	Kind       string     `json:"kind"`
	Term       baton.Term `json:"term"`
	InstanceID string     `json:"instance_id"`
	// Seq is the write's number, the last one if it has several; 0 for none.
	Seq int64 `json:"seq,omitempty"`
	// Count is how many numbers it has.
	Count int64 `json:"count"`
	AtMS  int64 `json:"at_ms"`
	// Covers is the work it is for, if it is a checkpoint of some.
	Covers *Units `json:"covers,omitempty"`
	// Tick is what it said, if it is one.
	Tick *Tick `json:"tick,omitempty"`
}

// Writes is a list of accepted writes, in their order.
type Writes struct {
	Writes []AcceptedWrite `json:"writes"`
}

// Audit is what a look at all accepted writes, in their order, has found.
type Audit struct {
	// OK says that there is nothing to complain about.
	OK     bool  `json:"ok"`
	Writes int64 `json:"writes"`
	// TermsFell counts writes accepted right after one of a later leadership,
	// or of another instance of the same term.
	TermsFell int64 `json:"terms_fell"`
	// SeqsFell counts writes whose numbers are not above those before.
	SeqsFell int64 `json:"seqs_fell"`
	// Duplicates counts numbers that were given out once more.
	Duplicates int64 `json:"duplicates"`
	// Units counts the pieces of work that checkpoints cover, Redone those that
	// were covered before, and Skipped those that were left out.
	Units   int64 `json:"units,omitempty"`
	Redone  int64 `json:"redone,omitempty"`
	Skipped int64 `json:"skipped,omitempty"`
	// Steps are the first of the writes that TermsFell and SeqsFell count.
	Steps []Step `json:"steps"`
}

// Step is an accepted write that should not have been, and the one before it.
type Step struct {
	AcceptedWrite
	PreviousTerm       baton.Term `json:"previous_term"`
	PreviousInstanceID string     `json:"previous_instance_id"`
	// PreviousSeq is the last number before, 0 if the write has none itself.
	PreviousSeq int64 `json:"previous_seq,omitempty"`
}

// Health is the answer of /healthz.
type Health struct {
	Status   string `json:"status"`
	Database string `json:"database"`
	Fencing  bool   `json:"fencing"`
	Message  string `json:"message,omitempty"`
}
