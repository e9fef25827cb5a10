package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"baton"
	"baton/internal/storeurl"
)

const example = "redis://host:6379/0?prefix=baton"

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name:       "redis",
		Schemes:    []string{"redis", "rediss"},
		Form:       example,
		Guarantees: survey{}.guarantees(),
		Open: func(ctx context.Context, url string) (baton.Store, error) {
			s, err := Open(ctx, url)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	})
}

// Open makes a store from a URL:
//
//	redis://[[user]:password@]host[:6379][/db][?prefix=baton]
//	redis://host:6379,host:6379?cluster=true
//	rediss://host:6379?ca=ca.pem&cert=client.pem&key=client.key
//
// rediss encrypts. Without ca the system's certificate authorities are
// trusted; cert and key are the client's own.
func Open(ctx context.Context, address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open redis store: %w", err)
	}
	return New(ctx, cfg)
}

func parseURL(address string) (Config, error) {
	u, err := storeurl.Parse(address, example)
	switch {
	case err != nil:
		return Config{}, err
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return Config{}, errors.New("want a URL such as " + example)
	case len(u.Hosts) == 0:
		return Config{}, errors.New("a host is missing: want a URL such as " + example)
	}
	known := []string{"prefix", "cluster"}
	if u.Scheme == "rediss" {
		known = append(known, storeurl.TLSOptions...)
	}
	if err := u.Only(known...); err != nil {
		return Config{}, err
	}
	cfg := Config{Username: u.Username, Password: u.Password, Prefix: u.Options.Get("prefix")}
	for _, host := range u.Hosts {
		cfg.Addresses = append(cfg.Addresses, withPort(host))
	}
	if cluster := u.Options.Get("cluster"); cluster != "" {
		if cfg.Cluster, err = strconv.ParseBool(cluster); err != nil {
			return Config{}, fmt.Errorf("option cluster is %q: want true or false", cluster)
		}
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if cfg.DB, err = strconv.Atoi(db); err != nil {
			return Config{}, fmt.Errorf("the path is %q: want the number of a database, such as /0", u.Path)
		}
	}
	if u.Scheme == "rediss" {
		cfg.TLS, err = u.TLS()
	}
	return cfg, err
}

func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "6379")
}
