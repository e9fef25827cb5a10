package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"baton"
	"baton/internal/storeurl"
)

const example = "etcd://host:2379,host:2379/prefix"

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name:       "etcd",
		Schemes:    []string{"etcd", "etcds"},
		Form:       example,
		Guarantees: guarantees,
		Open:       func(ctx context.Context, url string) (baton.Store, error) { return Open(ctx, url) },
	})
}

// Open makes a store from a URL:
//
//	etcd://[user:password@]host:2379[,host:2379...][/prefix]
//	etcds://host:2379/prefix?ca=ca.pem&cert=client.pem&key=client.key
//
// etcds encrypts. Without ca the system's certificate authorities are trusted;
// cert and key are the client's own.
func Open(_ context.Context, address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open etcd store: %w", err)
	}
	return New(cfg)
}

func parseURL(address string) (Config, error) {
	u, err := storeurl.Parse(address, example)
	switch {
	case err != nil:
		return Config{}, err
	case u.Scheme != "etcd" && u.Scheme != "etcds":
		return Config{}, errors.New("want a URL such as " + example)
	case len(u.Hosts) == 0:
		return Config{}, errors.New("a host is missing: want a URL such as " + example)
	}
	cfg := Config{Endpoints: u.Hosts, Prefix: u.Path, Username: u.Username, Password: u.Password}
	if u.Scheme == "etcd" {
		return cfg, u.Only()
	}
	if err := u.Only(storeurl.TLSOptions...); err != nil {
		return Config{}, err
	}
	cfg.TLS, err = u.TLS()
	return cfg, err
}
