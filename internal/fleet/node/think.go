package node

import "time"

// think is what a leader does between its look at the lease and the write that
// the look allowed. A process that is frozen meanwhile wakes and writes: no look
// helps against that, only the resource.
func (t *term) think() {
	if t.opt.writeDelay <= 0 {
		return
	}
	timer := time.NewTimer(t.opt.writeDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.write.Done():
	}
}
