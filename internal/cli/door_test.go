package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// While a server starts, nobody waits so long that they give up before they are told why, and
// those who ask how it is are told at once.
func TestDoorOfAServerThatStarts(t *testing.T) {
	for _, tt := range []struct {
		path   string
		status int
		waits  time.Duration
	}{
		{"/healthz", http.StatusOK, 0},
		{"/readyz", http.StatusServiceUnavailable, 0},
		{"/v1/cluster", http.StatusServiceUnavailable, 0},
		{"/v1/groups/g/leader", http.StatusServiceUnavailable, patience},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &door{opened: make(chan struct{})}
			w, began := httptest.NewRecorder(), time.Now()
			d.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil))
			if waited := time.Since(began); w.Code != tt.status || waited != tt.waits {
				t.Errorf("%s: %d after %v, want %d after %v", tt.path, w.Code, waited, tt.status, tt.waits)
			}
			if starts := strings.Contains(w.Body.String(), "the server is starting"); starts != (w.Code != http.StatusOK) {
				t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
			}
		})
	}
	a := &app{Program: Program{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}}
	if a.root(); 3*patience >= a.timeout {
		t.Errorf("commands give each of three servers %v to answer, and a server that starts takes %v", a.timeout/3, patience)
	}
}
