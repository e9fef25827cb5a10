package line

import (
	"context"
	"fmt"
	"testing"
	"time"

	"baton/internal/boottime"
)

// One handover in a line of 10,000: a vacancy, the first is called, is granted
// the group, and stands in line again.
func BenchmarkHandover(b *testing.B) {
	l := New(boottime.System(), func(context.Context, string) (bool, error) { return false, nil })
	called := make(chan string)
	stand := func(node string) {
		go func() {
			if l.Await(context.Background(), group, candidate(node)) == nil {
				called <- node
			}
		}()
	}
	for i := range 10_000 {
		stand(fmt.Sprint(i))
	}
	for l.Len(group) < 10_000 {
		time.Sleep(time.Millisecond)
	}
	for b.Loop() {
		l.Open(group, "", 0)
		node := <-called
		l.Granted(group, candidate(node))
		stand(node)
	}
	l.Close()
}

// A place taken and given up again, as by polls that time out, in many groups.
func BenchmarkPlace(b *testing.B) {
	l := New(boottime.System(), func(context.Context, string) (bool, error) { return true, nil })
	defer l.Close()
	groups := make([]string, 1000)
	for i := range groups {
		groups[i] = fmt.Sprint(i)
	}
	c := candidate("a")
	for i := 0; b.Loop(); i++ {
		g := groups[i%len(groups)]
		if err := l.Await(context.Background(), g, c); err != nil {
			b.Fatal(err)
		}
		l.Granted(g, c)
	}
}
