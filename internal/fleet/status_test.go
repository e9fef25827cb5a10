package fleet

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestClaimsHighestTokenFirst(t *testing.T) {
	claims := Claims(map[string]Status{
		"n1": {NodeID: "n1", Role: RoleLeader, FenceToken: 3},
		"n2": {NodeID: "n2", Role: RoleFollower},
		"n3": {NodeID: "n3", Role: RoleLeader, FenceToken: 4},
	})
	if len(claims) != 2 || claims[0].NodeID != "n3" || claims[1].NodeID != "n1" {
		t.Errorf("%+v", claims)
	}
}

// server answers requests for numbers always the same.
func server(t *testing.T, status int, answer any) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/next" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestNextGoesWhereTheLeaderIs(t *testing.T) {
	leader := server(t, http.StatusOK, Number{Token: 4, Seq: 12})
	follower := server(t, http.StatusConflict, Refusal{Code: CodeNotLeader, Leader: &Leader{NodeID: "n1", Address: leader}})
	for _, address := range []string{leader, follower} {
		if n, err := Next(t.Context(), http.DefaultClient, address); err != nil || n != (Number{Token: 4, Seq: 12}) {
			t.Errorf("%+v, %v", n, err)
		}
	}
	alone := server(t, http.StatusServiceUnavailable, Refusal{Code: CodeNoLeader})
	lost := server(t, http.StatusConflict, Refusal{Code: CodeNotLeader, Leader: &Leader{NodeID: "n1", Address: alone}})
	var refusal *Refusal
	if _, err := Next(t.Context(), http.DefaultClient, lost); !errors.As(err, &refusal) || refusal.Code != CodeNoLeader {
		t.Errorf("%v", err)
	}
	broken := server(t, http.StatusTeapot, nil)
	if _, err := Next(t.Context(), http.DefaultClient, broken); err == nil || errors.As(err, &refusal) {
		t.Errorf("%v", err)
	}
}

// A gateway that answers in a node's place says nothing about numbers.
func TestNextAtGateway(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusConflict, http.StatusServiceUnavailable} {
		gateway := server(t, status, map[string]string{"message": "maintenance"})
		var refusal *Refusal
		if n, err := Next(t.Context(), http.DefaultClient, gateway); err == nil || errors.As(err, &refusal) {
			t.Errorf("%d: got %+v, %v, want an error that is no refusal", status, n, err)
		}
	}
}

// Two nodes that name each other do not keep anybody for ever.
func TestNextDoesNotGoRoundInCircles(t *testing.T) {
	var asked int
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusConflict)
		// The same server by two names, in turn.
		other := strings.TrimPrefix(s.URL, "http://")
		if asked%2 == 0 {
			other = strings.Replace(other, "127.0.0.1", "localhost", 1)
		}
		if err := json.NewEncoder(w).Encode(Refusal{Code: CodeNotLeader, Leader: &Leader{NodeID: "n1", Address: other}}); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	var refusal *Refusal
	if _, err := Next(t.Context(), http.DefaultClient, strings.Replace(strings.TrimPrefix(s.URL, "http://"), "127.0.0.1", "localhost", 1)); !errors.As(err, &refusal) || asked < 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
