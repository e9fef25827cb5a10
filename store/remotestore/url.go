package remotestore

import (
	"context"
	"errors"
	"fmt"

	"baton"
	"baton/internal/storeurl"
)

const example = "http://host:7400,host:7400"

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name:    "baton",
		Schemes: []string{"http", "https"},
		Form:    example,
		Guarantees: baton.Guarantees{
			Store:   "baton",
			Caveats: []string{"a Baton server promises what the store behind it promises"},
		},
		Open: func(ctx context.Context, url string) (baton.Store, error) {
			s, err := Open(ctx, url)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	})
}

// Open makes a store from the URL of one or several servers of one cluster:
//
//	http://host:7400[,host:7400...]
//	https://[:token@]host:7400?ca=ca.pem&cert=client.pem&key=client.key
//
// The token is a bearer token; ca, cert and key are files for TLS.
func Open(ctx context.Context, address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open baton store: %w", err)
	}
	return New(ctx, cfg)
}

func parseURL(address string) (Config, error) {
	u, err := storeurl.Parse(address, example)
	switch {
	case err != nil:
		return Config{}, err
	case u.Scheme != "http" && u.Scheme != "https", len(u.Hosts) == 0:
		return Config{}, errors.New("want a URL such as " + example)
	case u.Username != "":
		return Config{}, errors.New("a server knows no users: want a token, as in https://:token@host:7400")
	case u.Scheme == "http":
		err = u.Only()
	default:
		err = u.Only(storeurl.TLSOptions...)
	}
	if err != nil {
		return Config{}, err
	}
	cfg := Config{Token: u.Password}
	for _, host := range u.Hosts {
		cfg.Servers = append(cfg.Servers, u.Scheme+"://"+host+u.Path)
	}
	if u.Scheme == "https" {
		cfg.TLS, err = u.TLS()
	}
	return cfg, err
}
