// Package storeurl reads the URLs of stores: several hosts, a user, a place
// below which things are kept, and files for TLS.
//
//	scheme://[user:password@]host[:port][,host[:port]...][/path][?option=value&...]
package storeurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// URL is one that was read.
type URL struct {
	Scheme             string
	Username, Password string
	// Hosts are as they were written; none is empty.
	Hosts []string
	// Path begins with a slash, or is empty.
	Path    string
	Options url.Values
}

// Parse reads an address. Errors say what is wrong with it and do not show the
// password. Hosts may be missing altogether, for stores that know their server
// otherwise. example is a URL that is right.
func Parse(address, example string) (URL, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return URL{}, fmt.Errorf("want a URL such as %s", example)
	}
	// The hosts are taken out first: to net/url a URL has one.
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
		return URL{}, errors.New("the user, the path or an option is not written as in a URL")
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return URL{}, errors.New("the options are not written as in a URL")
	}
	parsed := URL{Scheme: scheme, Username: u.User.Username(), Path: u.Path, Options: options}
	parsed.Password, _ = u.User.Password()
	if hosts == "" {
		return parsed, nil
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return URL{}, fmt.Errorf("a host is missing: want a URL such as %s", example)
		}
		parsed.Hosts = append(parsed.Hosts, host)
	}
	return parsed, nil
}

// Only refuses options other than these.
func (u URL) Only(names ...string) error {
	for name := range u.Options {
		if slices.Contains(names, name) {
			continue
		}
		if len(names) == 0 {
			return fmt.Errorf("unknown option %q: %s:// knows none", name, u.Scheme)
		}
		return fmt.Errorf("unknown option %q: %s:// knows %s", name, u.Scheme, strings.Join(names, ", "))
	}
	return nil
}

// TLSOptions are the names of the options that TLS reads.
var TLSOptions = []string{"ca", "cert", "key"}

// TLS reads the files that the options ca, cert and key name. Without ca the
// system's certificate authorities are trusted; cert and key are the client's own.
func (u URL) TLS() (*tls.Config, error) {
	ca, cert, key := u.Options.Get("ca"), u.Options.Get("cert"), u.Options.Get("key")
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
