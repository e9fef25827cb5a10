package kubestore_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"baton"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest/drill"
)

// before does something once, before one object is deleted.
type before struct {
	next http.RoundTripper
	name string
	once sync.Once
	act  func()
}

func (b *before) WrappedRoundTripper() http.RoundTripper { return b.next }

func (b *before) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+b.name) {
		b.once.Do(b.act)
	}
	return b.next.RoundTrip(r)
}

// A candidate that read the Lease before it was deleted reserves a term after
// that. The group goes all the same: nobody led, so there is nobody to wait for.
func TestDeletionWhileACandidateReserves(t *testing.T) {
	t.Parallel()
	s, c, namespace := fresh(t)
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	drill.Release(t, s, l)

	cfg := config(t, testserver.Shared(t, testserver.Kubernetes).URL, "admin")
	counters := c.CoreV1().ConfigMaps(namespace)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &before{next: next, name: "baton-term-g", act: func() {
			m, err := counters.Get(t.Context(), "baton-term-g", metav1.GetOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			m.Data["term"] = "7"
			if _, err := counters.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}}
	})
	deleting, err := kubestore.New(kubestore.Config{REST: cfg, Namespace: namespace, Timeout: drill.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deleting.Close() })
	if err := deleting.DeleteGroup(t.Context(), "g"); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if _, err := s.Group(t.Context(), "g"); !errors.Is(err, baton.ErrNotFound) {
		t.Errorf("the group that was deleted: %v", err)
	}
	if l := drill.Lead(t, s, "g", "i-2", 2*time.Second); l.Term <= 7 {
		t.Errorf("term %d after one was reserved that is 7", l.Term)
	}
}
