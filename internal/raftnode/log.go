package raftnode

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"slices"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Logger sends what raft says to the program's own log. Raft's info is
// debug here.
func Logger(log *slog.Logger) hclog.Logger {
	return calmLog{hclog.New(&hclog.LoggerOptions{
		Name: "raft", Output: lines{log}, DisableTime: true, Level: hclog.Info,
	})}
}

type lines struct{ log *slog.Logger }

func (l lines) Write(line []byte) (int, error) {
	level, text, _ := bytes.Cut(bytes.TrimSpace(line), []byte("]"))
	message := string(bytes.TrimSpace(text))
	switch string(level) {
	case "[ERROR":
		l.log.Error(message)
	case "[WARN":
		l.log.Warn(message)
	default:
		l.log.Debug(message)
	}
	return len(line), nil
}

// calmLog is raft's log without what raft says again and again while a server is away, and
// without the ends of connections. That is for debugging: Attendance says once what an operator has to know.
type calmLog struct{ hclog.Logger }

var repeated = map[string]bool{
	"peer has newer term, stopping replication":                  true, // at every change of the leader
	"failed to heartbeat to":                                     true,
	"failed to appendEntries to":                                 true,
	"failed to contact":                                          true,
	"failed to make requestVote RPC":                             true,
	"heartbeat timeout reached, starting election":               true,
	"Election timeout reached, restarting election":              true,
	"rejecting pre-vote request since we have a leader":          true,
	"rejecting vote request since we have a leader":              true,
	"rejecting pre-vote request since our last index is greater": true,
}

// Warn demotes what is for debugging: raft's info is debug in the program's log.
func (l calmLog) Warn(msg string, args ...any) {
	if repeated[msg] || endsConnection(args) {
		l.Info(msg, args...)
		return
	}
	l.Logger.Warn(msg, args...)
}

// Error is as Warn.
func (l calmLog) Error(msg string, args ...any) {
	if repeated[msg] || endsConnection(args) {
		l.Info(msg, args...)
		return
	}
	l.Logger.Error(msg, args...)
}

// endsConnection reports that a line is about a connection that this process has closed, as
// every one is when it stops, or whose other end has died.
func endsConnection(args []any) bool {
	return slices.ContainsFunc(args, func(arg any) bool {
		err, ok := arg.(error)
		return ok && (errors.Is(err, net.ErrClosed) || errors.Is(err, raft.ErrTransportShutdown) || errors.Is(err, syscall.ECONNRESET))
	})
}
