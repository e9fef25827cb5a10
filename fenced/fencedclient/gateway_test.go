package fencedclient_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"baton"
	"baton/fence"
	"baton/fenced/fencedclient"
)

// TestRedirectedElsewhere: a gateway sends the write to its login page, with which
// all is well. The write did not land, and is not taken for one that did.
func TestRedirectedElsewhere(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /login", func(http.ResponseWriter, *http.Request) {})
		mux.Handle("/v1/", http.RedirectHandler("/login", status))
		gateway := httptest.NewServer(mux)
		client, err := fencedclient.New(gateway.URL, gateway.Client())
		if err != nil {
			t.Fatal(err)
		}
		claim := fence.Ordered(baton.Token{Group: "payments", Term: 5, InstanceID: "a"}, 1)
		err = client.Tick(t.Context(), "jobs", claim, fencedclient.Tick{})
		if aborted := new(fence.AbortedError); !errors.As(err, &aborted) {
			t.Errorf("%d: got %v, want it aborted", status, err)
		}
		gateway.Close()
	}
}

// TestAnsweredByAnother: a page that says that all is well is no answer, either.
func TestAnsweredByAnother(t *testing.T) {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>please wait</html>")
	}))
	defer gateway.Close()
	client, err := fencedclient.New(gateway.URL, gateway.Client())
	if err != nil {
		t.Fatal(err)
	}
	tok := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	if _, err := client.Adopt(t.Context(), "jobs", tok); err == nil || fence.Refused(err) {
		t.Errorf("adopt: got %v, want an error that is no refusal", err)
	}
	aborted := new(fence.AbortedError)
	err = client.Tick(t.Context(), "jobs", fence.Ordered(tok, 1), fencedclient.Tick{})
	if err == nil || fence.Refused(err) || errors.As(err, &aborted) {
		t.Errorf("tick: got %v, want an unknown outcome", err)
	}
}
