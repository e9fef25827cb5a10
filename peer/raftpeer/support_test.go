package raftpeer

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"baton/internal/freeze"
	"baton/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func testLogger() *slog.Logger {
	if os.Getenv("BATON_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// gated is raft's log. Raft says something before everything that it decides by
// itself, so that a process that is frozen there does not decide anything either.
type gated struct {
	hclog.Logger
	gate *freeze.Gate
}

func (g gated) Info(msg string, args ...any)  { g.gate.Pass(); g.Logger.Info(msg, args...) }
func (g gated) Warn(msg string, args ...any)  { g.gate.Pass(); g.Logger.Warn(msg, args...) }
func (g gated) Error(msg string, args ...any) { g.gate.Pass(); g.Logger.Error(msg, args...) }
