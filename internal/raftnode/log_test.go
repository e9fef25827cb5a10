package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// What an operator can do nothing about is for debugging. All else keeps its level.
func TestLogger(t *testing.T) {
	connection := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for _, tt := range []struct {
		msg   string
		err   error
		quiet bool
	}{
		{"failed to heartbeat to", errors.New("connection refused"), true},
		{"failed to decode incoming command", connection(net.ErrClosed), true},
		{"failed to decode incoming command", raft.ErrTransportShutdown, true},
		{"failed to decode incoming command", connection(os.NewSyscallError("read", syscall.ECONNRESET)), true},
		{"failed to decode incoming command", errors.New("unknown rpc type 77"), false},
		{"failed to commit logs", syscall.ENOSPC, false},
	} {
		for level, say := range map[string]func(log *slog.Logger){
			"ERROR": func(log *slog.Logger) { Logger(log).Error(tt.msg, "error", tt.err) },
			"WARN":  func(log *slog.Logger) { Logger(log).Warn(tt.msg, "error", tt.err) },
		} {
			var out bytes.Buffer
			say(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
			if tt.quiet {
				level = "DEBUG"
			}
			if !bytes.Contains(out.Bytes(), fmt.Appendf(nil, `level=%s msg="raft: %s: error=`, level, tt.msg)) {
				t.Errorf("%s: %v: want %s: %s", tt.msg, tt.err, level, out.String())
			}
		}
	}
}
