package consulstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"baton"
	"baton/internal/storeurl"
)

const example = "consul://host:8500/prefix"

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name:       "consul",
		Schemes:    []string{"consul", "consuls"},
		Form:       example,
		Guarantees: guarantees,
		Open:       func(ctx context.Context, url string) (baton.Store, error) { return Open(ctx, url) },
	})
}

// Open makes a store from a URL:
//
//	consul://[:token@]host[:8500][/prefix][?dc=name][&node=name]
//	consuls://host:8501/prefix?ca=ca.pem&cert=client.pem&key=client.key
//
// consuls encrypts. Without ca the system's certificate authorities are
// trusted; cert and key are the client's own. A token is better given by
// CONSUL_HTTP_TOKEN or CONSUL_HTTP_TOKEN_FILE, which are used if there is none here.
func Open(ctx context.Context, address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open consul store: %w", err)
	}
	return New(ctx, cfg)
}

func parseURL(address string) (Config, error) {
	u, err := storeurl.Parse(address, example)
	switch {
	case err != nil:
		return Config{}, err
	case u.Scheme != "consul" && u.Scheme != "consuls":
		return Config{}, errors.New("want a URL such as " + example)
	case len(u.Hosts) != 1:
		return Config{}, errors.New("want one host, that of an agent, as in " + example)
	case u.Username != "":
		return Config{}, errors.New("there is a user name, and Consul has none: a token is written as consul://:token@host")
	}
	cfg := Config{Prefix: u.Path, Token: u.Password, Datacenter: u.Options.Get("dc"), Node: u.Options.Get("node")}
	known, port := []string{"dc", "node"}, "8500"
	if u.Scheme == "consuls" {
		known, port = append(known, storeurl.TLSOptions...), "8501"
	}
	if err := u.Only(known...); err != nil {
		return Config{}, err
	}
	cfg.Address = withPort(u.Hosts[0], port)
	if u.Scheme == "consuls" {
		cfg.TLS, err = u.TLS()
	}
	return cfg, err
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}
