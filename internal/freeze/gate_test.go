package freeze

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		passes := func(want time.Duration) {
			t.Helper()
			start := time.Now()
			g.Pass()
			if d := time.Since(start); d != want {
				t.Errorf("passed after %v, want %v", d, want)
			}
		}
		passes(0)
		g.Freeze(time.Second)
		g.Freeze(time.Hour) // is frozen already
		passes(time.Second)
		g.Freeze(time.Minute)
		time.AfterFunc(time.Second, g.Open)
		passes(time.Second)
		g.Freeze(10 * time.Minute)
		passes(10 * time.Minute) // the timer of the freeze before opens nothing
	})
}
