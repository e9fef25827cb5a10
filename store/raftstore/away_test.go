package raftstore

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// transcript is a log that several servers write.
type transcript struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.Write(b)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.String()
}

func (t *transcript) await(tt *testing.T, line string) {
	tt.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(t.String(), line); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tt.Fatalf("the log never said %q:\n%s", line, t)
		}
	}
}

// The log has one line when a server is away and one when it is back, whatever raft says meanwhile,
// and none that sounds like an error when servers stop.
func TestLogSaysOnceWhoIsAway(t *testing.T) {
	t.Parallel()
	log := &transcript{}
	c := newCluster(t, 3, func(cfg *Config) { cfg.Logger = logTo(log) })
	away := "s1"
	if c.leader(t, "") == away {
		away = "s2"
	}
	if err := c.servers[away].Close(); err != nil {
		t.Fatal(err)
	}
	log.await(t, `level=WARN msg="a server is away"`)
	s, err := Open(t.Context(), c.config(away))
	if err != nil {
		t.Fatal(err)
	}
	c.servers[away] = s
	log.await(t, `level=INFO msg="a server is back"`)
	lines := strings.Count(log.String(), "id="+away)
	c.stopAll()
	// Another one that leads meanwhile, because all of this is slow, has two lines of its own.
	if said := log.String(); strings.Contains(said, "level=ERROR") || lines < 2 || lines > 4 {
		t.Errorf("the log:\n%s", said)
	}
}
