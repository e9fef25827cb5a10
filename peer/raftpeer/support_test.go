package raftpeer

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"baton/internal/freeze"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLogger() *slog.Logger {
	if os.Getenv("BATON_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// gated is a log that passes a gate. Raft says something before everything that
// it decides by itself, so a frozen process does not decide anything either.
type gated struct {
	slog.Handler
	gate *freeze.Gate
}

func (g gated) Enabled(context.Context, slog.Level) bool { return true }

func (g gated) Handle(ctx context.Context, r slog.Record) error {
	g.gate.Pass()
	if !g.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return g.Handler.Handle(ctx, r)
}

func (g gated) WithAttrs(attrs []slog.Attr) slog.Handler {
	return gated{g.Handler.WithAttrs(attrs), g.gate}
}

func (g gated) WithGroup(name string) slog.Handler { return gated{g.Handler.WithGroup(name), g.gate} }
