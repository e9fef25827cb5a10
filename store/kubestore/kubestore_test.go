package kubestore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"baton"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest/drill"
)

// win campaigns until it is elected.
func win(t *testing.T, s baton.Store, group, instance string) (l baton.Lease) {
	t.Helper()
	drill.Eventually(t, "the group open", func() bool {
		var err error
		l, err = s.Acquire(t.Context(), group, baton.Candidate{NodeID: "node", InstanceID: instance}, 2*time.Second)
		if err != nil && !errors.Is(err, baton.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	return l
}

// A Lease that is deleted under its holder ends the leadership and opens the
// group to no other before the holder's time is over.
func TestALeaseDeletedUnderItsHolder(t *testing.T) {
	t.Parallel()
	s, c, namespace := fresh(t)
	sent := time.Now()
	l := drill.Lead(t, s, "g", "i-1", 3*time.Second)
	if err := c.CoordinationV1().Leases(namespace).Delete(t.Context(), "g", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// It was seen a moment ago, so the renewal is an update at once.
	if _, err := s.Renew(t.Context(), l.ID(), 3*time.Second); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("renew: %v, want ErrNotLeader", err)
	}
	if _, err := c.CoordinationV1().Leases(namespace).Get(t.Context(), "g", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the renewal made the Lease anew: %v", err)
	}
	other := open(t, testserver.Shared(t, testserver.Kubernetes), namespace)
	if now, err := other.Get(t.Context(), "g"); err != nil || !now.Held() || now.Term != 0 {
		t.Errorf("the group reads %+v, %v: want it held by nobody knows whom", now, err)
	}
	next := win(t, other, "g", "i-2")
	if early := time.Until(sent.Add(l.Remaining)); early > 0 || next.Term <= l.Term {
		t.Errorf("granted term %d after %d, %v before the holder's promise ended", next.Term, l.Term, early)
	}
}

func TestTermsSurviveTheLossOfObjects(t *testing.T) {
	t.Parallel()
	s, c, namespace := fresh(t)
	term := baton.Term(0)
	for n, lose := range []func() error{
		func() error { return nil },
		func() error {
			return c.CoordinationV1().Leases(namespace).Delete(t.Context(), "g", metav1.DeleteOptions{})
		},
		func() error {
			return c.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "baton-term-g", metav1.DeleteOptions{})
		},
		func() error { return s.DeleteGroup(t.Context(), "g") },
		func() error { return s.DeleteGroup(t.Context(), "g") },
		func() error {
			return c.CoordinationV1().Leases(namespace).Delete(t.Context(), "g", metav1.DeleteOptions{})
		},
	} {
		l := win(t, s, "g", fmt.Sprint("i-", n))
		if l.Term <= term {
			t.Errorf("term %d after %d", l.Term, term)
		}
		term = l.Term
		drill.Release(t, s, l)
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		if now, err := s.Get(t.Context(), "g"); err != nil || !now.Held() && now.Term < term {
			t.Errorf("the group reads %+v, %v: want no term below %d", now, err, term)
		}
	}
}

// gate holds back one update of a Lease.
type gate struct {
	next       http.RoundTripper
	armed      atomic.Bool
	came, open chan struct{}
}

func (g *gate) WrappedRoundTripper() http.RoundTripper { return g.next }

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/leases/") && g.armed.CompareAndSwap(true, false) {
		close(g.came)
		<-g.open
		r = r.Clone(context.WithoutCancel(r.Context())) // the network does not know who has given up
	}
	return g.next.RoundTrip(r)
}

// A grant that was reserved before another's arrives after it, and after the
// Lease was deleted: it must not count, and its lower term must not be seen.
func TestALateGrantAfterTheLeaseWasDeleted(t *testing.T) {
	t.Parallel()
	s, c, namespace := fresh(t)
	g := &gate{came: make(chan struct{}), open: make(chan struct{})}
	g.armed.Store(true)
	cfg := config(t, testserver.Shared(t, testserver.Kubernetes).URL, "admin")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { g.next = next; return g })
	late, err := kubestore.New(kubestore.Config{REST: cfg, Namespace: namespace, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = late.Close() })
	answered := make(chan error, 1)
	go func() {
		l, err := late.Acquire(t.Context(), "g", baton.Candidate{NodeID: "late", InstanceID: "i-0"}, 5*time.Second)
		if err == nil {
			err = fmt.Errorf("granted term %d", l.Term)
		}
		answered <- err
	}()
	<-g.came
	first := drill.Lead(t, s, "g", "i-1", 5*time.Second)
	drill.Release(t, s, first)
	if err := c.CoordinationV1().Leases(namespace).Delete(t.Context(), "g", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	close(g.open)
	if err := <-answered; !errors.Is(err, baton.ErrHeld) {
		t.Errorf("the late grant: %v, want it held until whoever had the deleted Lease is over it", err)
	}
	if l := win(t, s, "g", "i-2"); l.Term <= first.Term || first.Term <= 1 {
		t.Errorf("term %d after %d, which came after a reservation", l.Term, first.Term)
	}
}

// What a candidate of client-go's holds is respected for as long as it renews,
// and its leadership has no term.
func TestTheirLease(t *testing.T) {
	t.Parallel()
	s, c, namespace := fresh(t)
	leases := c.CoordinationV1().Leases(namespace)
	theirs, seconds := "theirs_1", int32(3)
	now := metav1.NowMicro()
	l, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "g"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &theirs, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(instance string) error {
		_, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "node", InstanceID: instance}, 2*time.Second)
		return err
	}
	var renewed time.Time
	for range 4 {
		var held *baton.HeldError
		if err := acquire("i-1"); !errors.As(err, &held) || held.Lease.NodeID != theirs || held.Lease.Term != 0 || held.Lease.TTL != 3*time.Second {
			t.Fatalf("acquire: %v, want it held by them without a term", err)
		}
		<-time.After(time.Second)
		renewed = time.Now()
		now := metav1.NewMicroTime(renewed)
		l.Spec.RenewTime = &now
		if l, err = leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("their renewal: %v", err)
		}
	}
	if err := s.End(t.Context(), "g", 1, baton.Ending{Reason: baton.SteppedDown}); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("end a term that they do not have: %v", err)
	}
	if err := s.DeleteGroup(t.Context(), "g"); !errors.Is(err, baton.ErrConflict) {
		t.Errorf("delete what they hold: %v", err)
	}
	won := win(t, s, "g", "i-2")
	if took := time.Since(renewed); took < 3*time.Second || won.Term == 0 {
		t.Errorf("term %d was granted %v after their last renewal of 3 s", won.Term, took)
	}
	past, err := s.History(t.Context(), "g")
	if err != nil || len(past) != 2 || past[0].NodeID != theirs || past[0].Term != 0 || past[0].Reason != baton.Expired || past[1].Term != won.Term {
		t.Errorf("the history is %+v, %v", past, err)
	}
	// And then theirs again: ours is over.
	if l, err = leases.Get(t.Context(), "g", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	transitions := *l.Spec.LeaseTransitions + 1
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions = &theirs, &transitions
	if _, err := leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), won.ID(), 2*time.Second); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("renew what they took: %v", err)
	}
	if err := acquire("i-2"); !errors.Is(err, baton.ErrConflict) {
		t.Errorf("acquire by the instance that they took it from: %v, want it ended", err)
	}
}

func TestNamesThatAreNoObjectNames(t *testing.T) {
	t.Parallel()
	s, c, namespace := fresh(t)
	drill.Lead(t, s, "Team:Payments", "i-1", time.Minute)
	all, err := c.CoordinationV1().Leases(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 || all.Items[0].Annotations["baton/group"] != "Team:Payments" {
		t.Errorf("the Leases are %+v, %v: want one that names its group", all.Items, err)
	}
	groups, err := s.Groups(t.Context())
	if err != nil || len(groups) != 1 || groups[0].ID != "Team:Payments" {
		t.Errorf("the groups are %+v, %v", groups, err)
	}
}

func TestHistoryKeepsAHundred(t *testing.T) {
	t.Parallel()
	s, _, _ := fresh(t)
	drill.HistoryKeepsAHundred(t, s)
}

// What a program's own client is limited to does not hold its renewals back.
func TestLimitsOfTheClientDoNotCount(t *testing.T) {
	t.Parallel()
	_, _, namespace := fresh(t)
	cfg := config(t, testserver.Shared(t, testserver.Kubernetes).URL, "admin")
	cfg.QPS, cfg.Burst = 0.001, 1
	s, err := kubestore.New(kubestore.Config{REST: cfg, Namespace: namespace, Timeout: drill.Unhurried})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	for range 5 {
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Kubernetes, testserver.Setting("authorization-mode", "RBAC"))
	t.Run("wrong credentials and places", func(t *testing.T) { wrongAccess(t, server) })
	t.Run("rights that suffice", func(t *testing.T) { rightsThatSuffice(t, server) })
}

func wrongAccess(t *testing.T, server *testserver.Server) {
	for address, want := range map[string]error{
		server.URL + "?context=stranger":      baton.ErrUnauthenticated,
		server.URL + "?context=guest":         baton.ErrNotAllowed,
		server.URL + "?namespace=not-there":   nil,
		server.URL + "?namespace=kube-system": errNone,
	} {
		s, err := drill.Answered(t, kubestore.Open, address)
		switch {
		case want == errNone && err == nil:
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		case err == nil || want == errNone, want != nil && !errors.Is(err, want), errors.Is(err, baton.ErrUnavailable):
			t.Errorf("%s: %v, want %v", address, err, want)
		}
	}
}

var errNone = errors.New("no error")

// The rights that docs/stores/kubernetes.md asks for suffice for everything.
func rightsThatSuffice(t *testing.T, server *testserver.Server) {
	c := client(t, server)
	namespace := freshNamespace(t, c)
	meta := metav1.ObjectMeta{Name: "baton"}
	if _, err := c.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "watch", "create", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "baton"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "guest"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	drill.Eventually(t, "the role in force", func() (ok bool) {
		s, err := kubestore.Open(t.Context(), server.URL+"?context=guest&namespace="+namespace)
		return err == nil && s.Close() == nil
	})
	s, err := kubestore.New(kubestore.Config{REST: config(t, server.URL, "guest"), Namespace: namespace, Timeout: drill.Unhurried})
	drill.Opened(t, s, err)
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	events := 0
	for ev, err := range s.Watch(t.Context(), "g", "") {
		if err != nil {
			t.Fatal(err)
		}
		if events++; events == 2 {
			if ev.Type != baton.LeaderLost || ev.Reason != baton.Resigned {
				t.Errorf("the watch tells %+v", ev)
			}
			break
		}
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Error(err)
		}
		drill.Release(t, s, l)
	}
	g, err := s.PutGroup(t.Context(), baton.Group{ID: "g"})
	if err == nil {
		version := g.Version
		if g, err = s.PutGroup(t.Context(), g); g.Version == version {
			t.Error("a registration that was put again has the version that it had")
		}
	}
	if err == nil {
		_, err = s.Groups(t.Context())
	}
	if err == nil {
		err = s.DeleteGroup(t.Context(), "g")
	}
	if err != nil {
		t.Error(err)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := kubestore.New(kubestore.Config{REST: &rest.Config{Host: "https://" + address}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Get(t.Context(), "g"); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("get: %v, want ErrUnavailable", err)
	}
}

// A server that says to come later is not sent the same write again: it may have
// taken effect all the same, and would then look like another's.
func TestWritesAreSentOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		mu.Lock()
		sent[r.Method]++
		mu.Unlock()
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	s, err := kubestore.New(kubestore.Config{REST: &rest.Config{Host: server.URL}, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.PutGroup(t.Context(), baton.Group{ID: "g"}); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if sent[http.MethodPost] != 1 {
		t.Errorf("the write was sent %d times", sent[http.MethodPost])
	}
}
