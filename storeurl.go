package baton

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// StoreKind is a kind of store that OpenStore can open.
type StoreKind struct {
	// Name is what people call it: "etcd".
	Name string
	// Schemes are those of its URLs: "etcd", "etcds".
	Schemes []string
	// Form shows what a URL looks like: "etcd://host:2379,host:2379/prefix".
	Form string
	// Guarantees are those of a store of this kind before any server was asked.
	// What a store that is open says of itself is more exact.
	Guarantees Guarantees
	// Open opens the store that the URL names. Errors do not show passwords.
	Open func(ctx context.Context, url string) (Store, error)
}

var kinds struct {
	sync.Mutex
	all []StoreKind
}

// RegisterStore makes a kind of store known to OpenStore. The packages below
// store/ do it when they are imported, so a program links the clients of those
// stores that it imports and no others. A scheme that is taken is a mistake of
// the program, and panics.
func RegisterStore(k StoreKind) {
	kinds.Lock()
	defer kinds.Unlock()
	if k.Open == nil || len(k.Schemes) == 0 {
		panic(fmt.Sprintf("baton: store %q registers without a scheme or without Open", k.Name))
	}
	for _, scheme := range k.Schemes {
		if other := kindOf(scheme); other != nil {
			panic(fmt.Sprintf("baton: stores %q and %q both register %s://", other.Name, k.Name, scheme))
		}
	}
	kinds.all = append(kinds.all, k)
	slices.SortFunc(kinds.all, func(a, b StoreKind) int { return strings.Compare(a.Name, b.Name) })
}

// StoreKinds are the kinds of store that this program has, by name.
func StoreKinds() []StoreKind {
	kinds.Lock()
	defer kinds.Unlock()
	return slices.Clone(kinds.all)
}

// OpenStore opens the store that a URL names, by its scheme:
//
//	import _ "baton/store/redisstore"
//
//	store, err := baton.OpenStore(ctx, "redis://127.0.0.1:6379")
//
// The package of the store has to be imported.
func OpenStore(ctx context.Context, url string) (Store, error) {
	scheme, _, ok := strings.Cut(url, "://")
	if !ok {
		scheme = ""
	}
	kinds.Lock()
	kind := kindOf(scheme)
	kinds.Unlock()
	if kind == nil {
		// The rest of the URL may hold a password.
		return nil, &InvalidArgumentError{Field: "store URL's scheme", Value: scheme, Want: wantScheme()}
	}
	return kind.Open(ctx, url)
}

// kindOf is called with kinds locked.
func kindOf(scheme string) *StoreKind {
	i := slices.IndexFunc(kinds.all, func(k StoreKind) bool { return slices.Contains(k.Schemes, scheme) })
	if i < 0 {
		return nil
	}
	k := kinds.all[i]
	return &k
}

func wantScheme() string {
	var forms []string
	for _, k := range StoreKinds() {
		forms = append(forms, k.Form)
	}
	if len(forms) == 0 {
		return `a store's package to be imported, such as _ "baton/store/etcdstore"`
	}
	return "one of " + strings.Join(forms, ", ") + `; other stores have to be imported, as _ "baton/store/etcdstore"`
}
