package consulstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/testserver"
	"baton/store/consulstore"
	"baton/storetest/drill"
)

// guarded is a Consul with access control, where nothing is allowed that is not
// said, and a maker of tokens.
func guarded(t *testing.T) (*testserver.Server, func(rules string) (token string)) {
	t.Helper()
	const root = "5d3c1e52-7a0f-4a2b-9f0e-1b8f6a6f0001"
	server := testserver.Start(t, testserver.Consul,
		testserver.Setting("acl", `{ enabled = true, default_policy = "deny", tokens { initial_management = "`+root+`" } }`))
	consul := raw(t, server, root)
	n := 0
	return server, func(rules string) string {
		t.Helper()
		n++
		name := "policy-" + string(rune('a'+n))
		var token *api.ACLToken
		drill.Eventually(t, "access control", func() bool {
			policy, _, err := consul.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil)
			if err != nil {
				return false
			}
			token, _, err = consul.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
			return err == nil
		})
		return token.SecretID
	}
}

const allRules = `key_prefix "mine/" { policy = "write" } session "baton" { policy = "write" } node "baton" { policy = "write" }`

func TestAccess(t *testing.T) {
	t.Parallel()
	server, token := guarded(t)
	address := host(t, server.URL)
	holder := token(allRules)
	s, err := drill.Answered(t, consulstore.Open, "consul://:"+holder+"@"+address+"/mine")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renew with the least that is needed: %v", err)
	}

	for name, c := range map[string]struct {
		rules string
		try   func(*consulstore.Store) error
	}{
		"a reader does not lead": {`key_prefix "mine/" { policy = "read" }`, func(s *consulstore.Store) error {
			_, err := s.Acquire(t.Context(), "h", candidate("i-1"), time.Minute)
			return err
		}},
		"no sessions": {`key_prefix "mine/" { policy = "write" }`, func(s *consulstore.Store) error {
			_, err := s.Acquire(t.Context(), "h", candidate("i-1"), time.Minute)
			return err
		}},
		"a reader does not release": {`key_prefix "mine/" { policy = "read" }`, func(s *consulstore.Store) error {
			return s.Release(t.Context(), l.ID())
		}},
		// What may not be read must not look vacant.
		"one key is hidden": {`key_prefix "mine/" { policy = "read" } key "mine/leases/g" { policy = "deny" }`, func(s *consulstore.Store) error {
			_, err := s.Get(t.Context(), "g")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, consulstore.Config{Address: address, Prefix: "mine", Token: token(c.rules)})
			if err := c.try(s); !errors.Is(err, baton.ErrNotAllowed) {
				t.Errorf("got %v, want ErrNotAllowed", err)
			}
		})
	}

	t.Run("a reader reads and watches", func(t *testing.T) {
		s := open(t, consulstore.Config{Address: address, Prefix: "mine", Token: token(`key_prefix "mine/" { policy = "read" }`)})
		if got, err := s.Get(t.Context(), "g"); err != nil || got.Term != l.Term || !got.Held() {
			t.Errorf("get: %+v, %v", got, err)
		}
		for ev, err := range s.Watch(t.Context(), "g", "") {
			if err != nil || ev.Term != l.Term {
				t.Errorf("watch: %+v, %v", ev, err)
			}
			break
		}
	})
	t.Run("another prefix", func(t *testing.T) {
		_, err := consulstore.New(t.Context(), consulstore.Config{Address: address, Prefix: "others", Token: holder, Timeout: drill.Unhurried})
		if !errors.Is(err, baton.ErrNotAllowed) {
			t.Errorf("open below a prefix that is not its own: %v, want ErrNotAllowed", err)
		}
	})
	t.Run("a token that is not known", func(t *testing.T) {
		_, err := drill.Answered(t, consulstore.Open, "consul://:00000000-0000-0000-0000-00000000beef@"+address+"/mine")
		if !errors.Is(err, baton.ErrUnauthenticated) || strings.Contains(err.Error(), "beef") {
			t.Errorf("open: %v, want ErrUnauthenticated that does not show the token", err)
		}
	})
	t.Run("no token", func(t *testing.T) {
		_, err := drill.Answered(t, consulstore.Open, "consul://"+address+"/mine")
		if !errors.Is(err, baton.ErrNotAllowed) {
			t.Errorf("open: %v, want ErrNotAllowed", err)
		}
	})
}

// The node may be registered by somebody who is allowed to, and used by all.
func TestTheNodeIsThereAlready(t *testing.T) {
	t.Parallel()
	server, token := guarded(t)
	address := host(t, server.URL)
	rules := `key_prefix "mine/" { policy = "write" } session "baton" { policy = "write" }`
	s := open(t, consulstore.Config{Address: address, Prefix: "mine", Token: token(rules)})
	_, err := s.Acquire(t.Context(), "g", candidate("i-1"), time.Minute)
	if !errors.Is(err, baton.ErrNotAllowed) || !strings.Contains(err.Error(), `register the node "baton"`) {
		t.Errorf("acquire without the node: %v, want an error that tells what is missing", err)
	}
	drill.Lead(t, open(t, consulstore.Config{Address: address, Prefix: "mine", Token: token(allRules)}), "h", "i-1", time.Minute)
	drill.Lead(t, s, "g", "i-1", time.Minute)
}
