package raftnode

import (
	"bytes"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// Logger sends what raft says to the program's own log. Raft's info is
// debug here.
func Logger(log *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "raft", Output: lines{log}, DisableTime: true, Level: hclog.Info,
	})
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
