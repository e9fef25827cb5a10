package etcdstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Open makes a store from a URL:
//
//	etcd://[user:password@]host:2379[,host:2379...][/prefix]
//	etcds://host:2379/prefix?ca=ca.pem&cert=client.pem&key=client.key
//
// etcds encrypts. Without ca the system's certificate authorities are trusted;
// cert and key are the client's own.
func Open(address string) (*Store, error) {
	cfg, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open etcd store: %w", err)
	}
	return New(cfg)
}

// parseURL takes the list of hosts out first: a URL has one. No error shows the password.
func parseURL(address string) (Config, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return Config{}, errors.New("want a URL such as etcd://host:2379,host:2379/prefix")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse(scheme + "://" + user + "hosts" + tail)
	if err != nil {
		return Config{}, errors.New("the user, the prefix or an option is not written as in a URL")
	}
	cfg := Config{Prefix: u.Path, Username: u.User.Username()}
	cfg.Password, _ = u.User.Password()
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return Config{}, errors.New("a host is missing: want etcd://host:2379,host:2379/prefix")
		}
		cfg.Endpoints = append(cfg.Endpoints, host)
	}
	options := u.Query()
	for name := range options {
		if name != "ca" && name != "cert" && name != "key" || scheme == "etcd" {
			return Config{}, fmt.Errorf("unknown option %q: etcds knows ca, cert and key, etcd none", name)
		}
	}
	if scheme == "etcds" {
		cfg.TLS, err = readTLS(options.Get("ca"), options.Get("cert"), options.Get("key"))
	}
	return cfg, err
}

func readTLS(ca, cert, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read the certificate authorities: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
