package lab

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows what runs, how far it is and how long the rest takes.
type progress struct {
	w        io.Writer
	began    time.Time
	parallel int

	mu      sync.Mutex
	planned time.Duration // of all, by estimate
	done    time.Duration // of it
	spent   time.Duration // in fact, for what is done
	running map[*part]struct{}
}

func newProgress(w io.Writer, planned time.Duration, parallel int) *progress {
	return &progress{w: w, began: time.Now(), planned: planned, parallel: max(parallel, 1), running: map[*part]struct{}{}}
}

// part is one thing that runs, perhaps beside others.
type part struct {
	*progress
	title string
	began time.Time
	takes time.Duration // by estimate
}

// note shows a line about what no estimate knows of.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.w, "%7s  %s\n", time.Since(p.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
}

// begin says what comes next, and is estimated to take this long.
func (p *progress) begin(title string, takes time.Duration) *part {
	t := &part{progress: p, title: title, began: time.Now(), takes: takes}
	p.mu.Lock()
	p.running[t] = struct{}{}
	p.mu.Unlock()
	t.say("begins")
	return t
}

// end says that a part is done.
func (t *part) end(verdict string) {
	t.mu.Lock()
	delete(t.running, t)
	t.done += t.takes
	t.spent += time.Since(t.began)
	t.mu.Unlock()
	t.say("%s", verdict)
}

// skip says that a part needs not be done.
func (p *progress) skip(estimate time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planned -= estimate
}

// say shows a line.
func (t *part) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.done
	for p := range t.running {
		done += min(time.Since(p.began), p.takes)
	}
	left := t.planned - done
	if t.done > 0 { // by how it went so far
		left = time.Duration(float64(left) * float64(t.spent) / float64(t.done))
	}
	_, _ = fmt.Fprintf(t.w, "%7s  %3d%%  ~%s left  %s: %s\n", time.Since(t.progress.began).Round(100*time.Millisecond),
		100*done/max(t.planned, 1), (left / time.Duration(t.parallel)).Round(time.Second), t.title, fmt.Sprintf(format, args...))
}
