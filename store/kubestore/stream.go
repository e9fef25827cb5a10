package kubestore

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"baton"
)

// stream follows all Leases of the namespace by one watch, for all who wait for
// one of them to change. It runs while somebody waits, and for a while longer.
//
// It is a hint: who waits looks by itself from time to time.
type stream struct {
	leases coordination.LeaseInterface
	life   context.Context
	end    context.CancelFunc
	runs   sync.WaitGroup

	mu      sync.Mutex
	running bool
	used    bool // somebody waited since the watch was opened last
	waiting int  // how many wait now
	seen    map[string]sighting
	heard   time.Time     // when the watch said something last
	refused error         // why there can be no watch
	changed chan struct{} // closed and replaced when any of this changes
}

// sighting is a Lease as an event had it; gone, it is the one that was removed.
type sighting struct {
	version string
	gone    bool
	lease   *coordinationv1.Lease
}

const (
	// watchLasts is after how long a watch is opened anew. One whose connection
	// has silently died says nothing of it.
	watchLasts = 30 * time.Second
	watchPause = 250 * time.Millisecond
	// heardLately is how old the last event may be for those who only wait.
	heardLately = 2 * time.Second
)

func newStream(leases coordination.LeaseInterface) *stream {
	s := &stream{leases: leases, seen: map[string]sighting{}, changed: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

func (s *stream) close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.runs.Wait()
}

// wait returns when the Lease is known to have another version than this one;
// "" is one that does not exist.
func (s *stream) wait(ctx context.Context, name, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
	s.waiting++
	defer func() { s.waiting-- }()
	for {
		s.used = true
		switch {
		case s.refused != nil:
			return s.refused
		case s.seen[name].after(version):
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-s.life.Done():
		case <-changed:
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.life.Err() != nil {
			return s.life.Err()
		}
	}
}

// last is the Lease as it was seen last, by a watch that is known to be alive.
func (s *stream) last(name string) (*coordinationv1.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.seen[name]
	return now.lease, now.lease != nil && !now.gone && time.Since(s.heard) < heardLately
}

// start is called with s locked.
func (s *stream) start() {
	if s.running || s.life.Err() != nil {
		return
	}
	s.running, s.refused = true, nil
	s.runs.Go(s.run)
}

// run opens one watch after the other, each from where the one before has come to.
func (s *stream) run() {
	from := ""
	for {
		opened := time.Now()
		err := s.follow(&from)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			from = "" // compacted, or of a cluster that was restored: begins with all Leases as they are
		}
		if !s.goOn(kindOf(err)) {
			return
		}
		if time.Since(opened) < watchPause {
			pause(s.life, watchPause)
		}
	}
}

// goOn reports whether there is reason to open another watch.
func (s *stream) goOn(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if baton.IsAnswer(err) {
		s.refused = err
	}
	if s.life.Err() == nil && s.refused == nil && (s.used || s.waiting > 0) {
		s.used = false
		return true
	}
	s.running, s.seen = false, map[string]sighting{}
	s.announce()
	return false
}

// follow takes in what one watch tells, and keeps in from how far it has come.
func (s *stream) follow(from *string) error {
	ctx, cancel := context.WithTimeout(quiet(s.life), watchLasts+watchLasts/4)
	defer cancel()
	w, err := s.leases.Watch(ctx, metav1.ListOptions{
		ResourceVersion: *from, AllowWatchBookmarks: true, TimeoutSeconds: ptr(int64(watchLasts / time.Second)),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	if *from == "" {
		s.forget()
	}
	for event := range w.ResultChan() {
		if event.Type == apiwatch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return err
		}
		*from = object.GetResourceVersion()
		lease, _ := event.Object.(*coordinationv1.Lease)
		if event.Type != apiwatch.Bookmark {
			s.saw(object.GetName(), sighting{object.GetResourceVersion(), event.Type == apiwatch.Deleted, lease})
		}
	}
	return ctx.Err()
}

// forget is for a watch that begins with all Leases as they are: it does not
// tell of those that are gone.
func (s *stream) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = map[string]sighting{}
}

func (s *stream) saw(name string, now sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[name], s.heard = now, time.Now()
	s.announce()
}

// announce is called with s locked.
func (s *stream) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// after reports whether a Lease that had this version has another now. Kubernetes
// orders versions as numbers; if these are none, they differ or not.
func (s sighting) after(version string) bool {
	switch {
	case s.version == "":
		return false
	case version == "":
		return !s.gone
	}
	seen, errSeen := strconv.ParseUint(s.version, 10, 64)
	known, errKnown := strconv.ParseUint(version, 10, 64)
	if errors.Join(errSeen, errKnown) != nil {
		return s.version != version
	}
	return seen > known
}
