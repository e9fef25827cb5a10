package chaos

import (
	"context"
	"net/http"
	"sync"
	"time"

	"baton/internal/fleet"
)

// look is what one node said at one moment, or that it did not.
type look struct {
	node   string
	at     time.Time
	status fleet.Status
	err    error
}

const lookEvery = 20 * time.Millisecond

// watch looks at all nodes again and again until ctx ends, each by itself, so
// that one that is frozen does not hide the others.
func watch(ctx context.Context, f *fleet.File, hc *http.Client) <-chan look {
	looks := make(chan look)
	var wg sync.WaitGroup
	for _, n := range f.Nodes {
		wg.Go(func() {
			for {
				asking, cancel := context.WithTimeout(ctx, askTimeout)
				s, err := fleet.GetStatus(asking, hc, n.HTTP)
				cancel()
				select {
				case looks <- look{node: n.ID, at: time.Now(), status: s, err: err}:
				case <-ctx.Done():
					return
				}
				select {
				case <-time.After(lookEvery):
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(looks)
	}()
	return looks
}
