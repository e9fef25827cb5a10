package zkstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"

	"baton"
)

// Open makes a store from a URL:
//
//	zookeeper://[user:password@]host:2181[,host:2181...][/prefix]
//
// The prefix is the znode that all others are below.
func Open(ctx context.Context, address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open zookeeper store: %w", err)
	}
	return New(ctx, cfg)
}

// parseURL takes the list of hosts out first: a URL has one. No error shows the password.
func parseURL(address string) (Config, error) {
	rest, ok := strings.CutPrefix(address, "zookeeper://")
	if !ok {
		return Config{}, errors.New("want a URL such as zookeeper://host:2181,host:2181/prefix")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("zookeeper://" + user + "hosts" + tail)
	if err != nil {
		return Config{}, errors.New("the user or the prefix is not written as in a URL")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return Config{}, errors.New("there are no options: want zookeeper://user:password@host:2181,host:2181/prefix")
	}
	cfg := Config{Username: u.User.Username()}
	cfg.Password, _ = u.User.Password()
	if u.User != nil && (cfg.Username == "" || cfg.Password == "") {
		return Config{}, errors.New("a user has a name and a password: want zookeeper://user:password@host:2181")
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return Config{}, errors.New("a host is missing: want zookeeper://host:2181,host:2181/prefix")
		}
		if _, port, err := net.SplitHostPort(host); err == nil && port == "" {
			return Config{}, fmt.Errorf("host %q has no port behind its colon", host)
		}
		cfg.Servers = append(cfg.Servers, host)
	}
	if prefix := strings.TrimRight(u.Path, "/"); prefix != "" {
		cfg.Prefix = prefix
	}
	return cfg, checkPrefix(cfg.Prefix)
}

// checkPrefix wants a path as ZooKeeper has them. Empty is the default.
func checkPrefix(prefix string) error {
	reserved := prefix == "/zookeeper" || strings.HasPrefix(prefix, "/zookeeper/")
	if prefix != "" && (prefix == "/" || !strings.HasPrefix(prefix, "/") || path.Clean(prefix) != prefix || reserved || strings.ContainsFunc(prefix, isControl)) {
		return &baton.InvalidArgumentError{Field: "prefix", Value: prefix, Want: "a path such as /baton, not below /zookeeper"}
	}
	return nil
}

func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}
