package leak

import (
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

func TestFind(t *testing.T) {
	left, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); <-left }()
	if find(0) == nil {
		t.Error("a goroutine that waits forever was not found")
	}
	time.AfterFunc(time.Second, func() { close(left) }) // longer than goleak looks for
	None(t)
	<-ended
}
