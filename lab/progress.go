package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows what runs, how far it is and how long the rest takes.
type progress struct {
	w     io.Writer
	began time.Time

	mu      sync.Mutex
	title   string
	planned time.Duration // of all, by estimate
	done    time.Duration // of it
	spent   time.Duration // in fact, for what is done
	current time.Time     // when the present part began
}

func newProgress(w io.Writer, planned time.Duration) *progress {
	return &progress{w: w, began: time.Now(), planned: planned}
}

// begin says what comes next.
func (p *progress) begin(title string) {
	p.mu.Lock()
	p.title, p.current = title, time.Now()
	p.mu.Unlock()
	p.say("begins")
}

// end says that a part is done that was estimated to take this long.
func (p *progress) end(estimate time.Duration, verdict string) {
	p.mu.Lock()
	p.done += estimate
	p.spent += time.Since(p.current)
	p.mu.Unlock()
	p.say("%s", verdict)
}

// say shows a line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.planned - p.done
	if p.done > 0 { // by how it went so far
		left = time.Duration(float64(left) * float64(p.spent) / float64(p.done))
	}
	_, _ = fmt.Fprintf(p.w, "%7s  %3d%%  ~%s left  %s: %s\n", time.Since(p.began).Round(100*time.Millisecond),
		100*p.done/max(p.planned, 1), left.Round(time.Second), p.title, fmt.Sprintf(format, args...))
}
