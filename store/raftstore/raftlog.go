package raftstore

import (
	"bytes"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger sends what raft says to the program's own log. Raft's info is
// this store's debug.
func raftLogger(log *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "raft", Output: lines{log}, DisableTime: true, Level: hclog.Info,
	})
}

type lines struct{ log *slog.Logger }

func (l lines) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	switch {
	case bytes.HasPrefix(line, []byte("[ERROR]")):
		l.log.Error(text)
	case bytes.HasPrefix(line, []byte("[WARN]")):
		l.log.Warn(text)
	default:
		l.log.Debug(text)
	}
	return len(line), nil
}
