package fencedclient_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"baton"
	"baton/fence"
	"baton/fenced/fencedclient"
)

// isUnknown: neither done nor said not to be.
func isUnknown(err error) bool {
	aborted := new(fence.AbortedError)
	return err != nil && !fence.Refused(err) && !errors.As(err, &aborted)
}

// TestRedirectedElsewhere: a gateway sends the write to its login page, with which
// all is well. Before that it may have passed the write on.
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
		if !isUnknown(err) {
			t.Errorf("%d: got %v, want an unknown outcome", status, err)
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
	wantNothing(t, client)
}

// wantNothing: whatever is asked, nothing is concluded from the answer.
func wantNothing(t *testing.T, client *fencedclient.Client) {
	t.Helper()
	ctx := t.Context()
	tok := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	claim := fence.Ordered(tok, 1)
	_, adopt := client.Adopt(ctx, "jobs", tok)
	_, numbers := client.Numbers(ctx, "jobs", claim, 1)
	_, checkpoint := client.Checkpoint(ctx, "jobs")
	_, landed := client.Landed(ctx, "jobs", claim)
	_, writes := client.Writes(ctx, "jobs", 0)
	for what, err := range map[string]error{
		"adopt": adopt, "advance": client.Advance(ctx, "jobs", claim),
		"tick": client.Tick(ctx, "jobs", claim, fencedclient.Tick{}), "numbers": numbers,
		"save":       client.SaveCheckpoint(ctx, "jobs", claim, fencedclient.Saved{Data: []byte("1")}),
		"checkpoint": checkpoint, "landed": landed, "writes": writes,
	} {
		if !isUnknown(err) || errors.Is(err, baton.ErrNotFound) || errors.Is(err, baton.ErrTooLarge) {
			t.Errorf("%s: got %v, want an error that says nothing", what, err)
		}
	}
}

// TestGatewayAnswers: a gateway answers in its own words, after the request may have
// been passed on. That is not the server's no, nor its yes.
func TestGatewayAnswers(t *testing.T) {
	const text, object = "text/html", "application/json"
	for name, answer := range map[string]struct {
		status     int
		kind, body string
	}{
		"yes, in other words":    {200, object, `{"status":"maintenance"}`},
		"not modified":           {304, "", ""},
		"a bad request":          {400, text, "Bad Request"},
		"who are you":            {401, text, "<html>log in</html>"},
		"forbidden":              {403, object, `{"message":"Forbidden"}`},
		"no such page":           {404, "text/plain; charset=utf-8", "404 page not found\n"},
		"no such route":          {404, object, `{"message":"no Route matched with those values"}`},
		"proxy authentication":   {407, text, ""},
		"too slow":               {408, text, ""},
		"a conflict":             {409, object, `{"error":"conflict"}`},
		"its own precondition":   {412, text, ""},
		"its own limit of size":  {413, text, "<html>413 Request Entity Too Large</html>"},
		"misdirected":            {421, text, ""},
		"rate limited":           {429, object, `{"error":"RATE_LIMITED","message":"slow down"}`},
		"client closed":          {499, text, ""},
		"our code, other status": {400, object, `{"error":"TOO_LARGE","message":"no"}`},
		"our code, other type":   {413, text, `{"error":"TOO_LARGE","message":"no"}`},
	} {
		t.Run(name, func(t *testing.T) {
			gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{answer.kind}
				w.WriteHeader(answer.status)
				_, _ = io.WriteString(w, answer.body)
			}))
			defer gateway.Close()
			client, err := fencedclient.New(gateway.URL, gateway.Client())
			if err != nil {
				t.Fatal(err)
			}
			wantNothing(t, client)
		})
	}
}

// TestServerRefuses: what the server itself says is its word.
func TestServerRefuses(t *testing.T) {
	server, stop := serve()
	defer stop()
	client, err := fencedclient.New(server, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Checkpoint(t.Context(), "jobs"); !errors.Is(err, baton.ErrNotFound) {
		t.Errorf("read a checkpoint that was never saved: got %v, want ErrNotFound", err)
	}
	claim := fence.Ordered(baton.Token{Group: "payments", Term: 5, InstanceID: "a"}, 1)
	err = client.Tick(t.Context(), "jobs", claim, fencedclient.Tick{Note: strings.Repeat("x", fencedclient.MaxBody)})
	if aborted := new(fence.AbortedError); !errors.As(err, &aborted) || !errors.Is(err, baton.ErrTooLarge) {
		t.Errorf("a tick that is too large: got %v, want it aborted as ErrTooLarge", err)
	}
}
