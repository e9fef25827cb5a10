package main

import (
	"context"
	"time"
)

// contender is a running system that is measured.
type contender interface {
	// Name is what rows are labelled with: "baton", "etcd x3".
	Name() string
	// Rival is the contender whose figures this one's are divided by; "" for none.
	Rival() string
	// Describe says what runs.
	Describe(ctx context.Context) string
	// PIDs are the processes of its servers.
	PIDs() []int

	// Renewals, Cycles and Reads are ways to do the same work; the first is
	// the one that is compared.
	Renewals() []load
	Cycles() []load
	Reads() []load

	// Candidate joins a group as one of several that want to lead it.
	Candidate(ctx context.Context, group string, client int) (candidate, error)
	// Hold leads the group without anybody who renews, for ttl.
	Hold(ctx context.Context, group string, client int, ttl time.Duration) (holder, error)

	Close() error
}

// load is one way to put a contender to work.
type load struct {
	// way tells it from others of the same contender: "KeepAliveOnce".
	way string
	// counted says what one operation is.
	counted string
	// open prepares one of many clients.
	open func(ctx context.Context, client int) (operation, error)
}

// operation is what is counted and timed.
type operation func(ctx context.Context) error

// candidate is one that campaigns, leads and resigns, again and again.
type candidate interface {
	// Campaign returns when it leads.
	Campaign(ctx context.Context) error
	Resign(ctx context.Context) error
	Close() error
}

// holder leads and does not renew by itself.
type holder interface {
	// Renew renews once, and returns the earliest moment at which the lease can end.
	Renew(ctx context.Context) (ends time.Time, err error)
}
