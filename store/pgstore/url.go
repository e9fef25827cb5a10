package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Open makes a store from a URL as Postgres' clients take it, such as
//
//	postgres://user:password@host:5432,host:5432/database?sslmode=verify-full&baton_schema=leases
//
// baton_schema is where the tables are, "baton" without it.
func Open(ctx context.Context, address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open postgres store: %w", err)
	}
	return New(ctx, cfg)
}

// parseURL takes out what is ours. The rest is pgx's, and knows more than
// url.Parse does: several hosts, a host that is a directory. No error shows the password.
func parseURL(address string) (Config, error) {
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		return Config{}, errors.New("want a URL such as postgres://user@host:5432/database")
	}
	head, query, _ := strings.Cut(address, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return Config{}, errors.New("an option is not written as in a URL")
	}
	cfg := Config{Schema: options.Get("baton_schema")}
	if options.Has("baton_schema") {
		if err := validateSchema(cfg.Schema); err != nil {
			return Config{}, err
		}
	}
	options.Del("baton_schema")
	for name := range options {
		if strings.HasPrefix(name, "baton_") {
			return Config{}, fmt.Errorf("unknown option %q: there is baton_schema", name)
		}
	}
	cfg.URL = head
	if len(options) > 0 {
		cfg.URL += "?" + options.Encode()
	}
	return cfg, nil
}

// namesPoolSize reports whether a connection string says how many connections there may be.
func namesPoolSize(address string) bool { return strings.Contains(address, "pool_max_conns=") }
