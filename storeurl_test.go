package baton_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"baton"
)

// opened is the URL that the kind "test" was asked to open last. There is no way to take a kind back, so that
// it is registered once for as many runs of the test as there are.
var (
	opened   string
	testKind = baton.StoreKind{
		Name: "test", Schemes: []string{"test", "tests"}, Form: "test://host",
		Open: func(_ context.Context, url string) (baton.Store, error) {
			opened = url
			return nil, baton.ErrUnavailable
		},
	}
	registerTestKind = sync.OnceFunc(func() { baton.RegisterStore(testKind) })
)

func TestOpenStoreByScheme(t *testing.T) {
	registerTestKind()
	for _, url := range []string{"test://h:1/p", "tests://h"} {
		if _, err := baton.OpenStore(t.Context(), url); !errors.Is(err, baton.ErrUnavailable) || opened != url {
			t.Errorf("%s: the kind's Open was given %q, and OpenStore said %v", url, opened, err)
		}
	}
	for _, url := range []string{"", "test", "test:h", "nosuch://ann:secret@h"} {
		_, err := baton.OpenStore(t.Context(), url)
		if !errors.Is(err, baton.ErrInvalidArgument) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "test://host") {
			t.Errorf("%q: %v; want what is known, and no password", url, err)
		}
	}
	for name, k := range map[string]baton.StoreKind{
		"a scheme twice": {Name: "other", Schemes: []string{"tests"}, Open: testKind.Open},
		"no scheme":      {Name: "other", Open: testKind.Open},
		"no Open":        {Name: "other", Schemes: []string{"other"}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was registered", name)
				}
			}()
			baton.RegisterStore(k)
		}()
	}
}
