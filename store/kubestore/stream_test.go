package kubestore

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"baton"
)

// told is an API server whose watches tell what the test says.
type told struct {
	coordination.LeaseInterface
	watches chan apiwatch.Interface
	from    chan string
}

func (t told) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	t.from <- o.ResourceVersion
	select {
	case w := <-t.watches:
		return w, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func named(name, version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// A watch that begins anew tells of all Leases that are there, and not of those
// that were deleted meanwhile. One that is remembered would be shown for as
// long as others change, between reads that show that it is gone, and an observer
// that is shown now this, now that, never comes to the end of counting.
func TestAWatchThatBeginsAnewForgetsWhatWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := told{watches: make(chan apiwatch.Interface, 2), from: make(chan string, 10)}
		s := newStream(api)
		defer s.close()
		first, second := apiwatch.NewFakeWithChanSize(4, false), apiwatch.NewFakeWithChanSize(4, false)
		defer second.Stop()
		api.watches <- first
		api.watches <- second
		first.Add(named("gone", "1"))
		if err := s.wait(t.Context(), "gone", ""); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.last("gone"); !ok {
			t.Fatal("a Lease that the watch has just told of is not known")
		}
		expired := apierrors.NewResourceExpired("too old").Status()
		first.Error(&expired)
		second.Add(named("other", "9"))
		if err := s.wait(t.Context(), "other", ""); err != nil {
			t.Fatal(err)
		}
		if from := []string{<-api.from, <-api.from}; from[0] != "" || from[1] != "" {
			t.Errorf("the watches began at %q: want anew each", from)
		}
		if l, ok := s.last("gone"); ok {
			t.Errorf("%s is still known, of which the second watch does not tell", l.Name)
		}
	})
}

// What stands between us and the API server has pages of its own for what it
// does not find. They say nothing of a Lease.
func TestSomebodyElsesNotFound(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/"+floorName) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"baton-floor","uid":"u","resourceVersion":"1"},"data":{"term":"0","ended":"0"}}`))
			return
		}
		http.Error(w, "default backend - 404", http.StatusNotFound)
	}))
	defer server.Close()
	s, err := New(Config{REST: &rest.Config{Host: server.URL}, Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if l, err := s.Get(t.Context(), "g"); err == nil || baton.IsAnswer(err) {
		t.Errorf("get: %+v, %v", l, err)
	}
	_, err = s.Renew(t.Context(), baton.LeaseID{Group: "g", NodeID: "n", InstanceID: "i", Term: 1}, 2*time.Second)
	if err == nil || baton.IsAnswer(err) {
		t.Errorf("renew: %v", err)
	}
}
