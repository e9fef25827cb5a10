// Package leak looks for goroutines that tests have left behind. It is goleak, which gives those that are about to end
// less than half a second, with the patience that a machine needs which stands still for longer.
package leak

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is far beyond what a goroutine takes that is about to end.
const patience = 30 * time.Second

// Main is for TestMain: it runs the tests, looks for goroutines that were left behind if they pass, and exits.
func Main(m interface{ Run() int }) {
	code := m.Run()
	if code == 0 {
		if err := Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// None is for the end of one test, which must not run beside others.
func None(t interface {
	Helper()
	Error(args ...any)
}, options ...goleak.Option,
) {
	t.Helper()
	if err := Find(options...); err != nil {
		t.Error(err)
	}
}

// Find returns an error that shows the goroutines that do not end.
func Find(options ...goleak.Option) error { return find(patience, options...) }

func find(patience time.Duration, options ...goleak.Option) error {
	for began := time.Now(); ; {
		err := goleak.Find(options...)
		if err == nil || time.Since(began) > patience {
			return err
		}
	}
}
