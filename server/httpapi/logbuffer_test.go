package httpapi_test

import (
	"bytes"
	"encoding/json"
	"sync"
)

// logBuffer keeps what was logged, one JSON object per line.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// find returns the lines that have all these values.
func (l *logBuffer) find(want map[string]any) (found []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.buf.Bytes()) {
		var m map[string]any
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		match := true
		for k, v := range want {
			match = match && m[k] == v
		}
		if match {
			found = append(found, m)
		}
	}
	return found
}
