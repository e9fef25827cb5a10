package remotestore

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"baton"
)

// Config says which servers to talk to and how.
type Config struct {
	// Servers are the addresses of one cluster's servers, such as
	// "http://10.0.0.1:7400". Without a scheme it is http.
	Servers []string
	// Token, if set, is sent as a bearer token.
	Token string
	// TLS configures https; nil takes the machine's roots.
	TLS *tls.Config
	// Transport replaces the connections of this package, and TLS with it.
	Transport http.RoundTripper

	// Timeout bounds every call that does not wait for something to happen,
	// its repetitions included. Each of n servers has an n-th of it to answer, or an n-th of the
	// lease that is asked for if that is shorter. Default 5s.
	Timeout time.Duration
	// WatchIdle is how long a watch may be silent, heartbeats included,
	// before the connection is taken for dead. Default 45s.
	WatchIdle time.Duration
	// WatchPatience is how long a watch that lost its server looks for another
	// before it ends with ErrUnavailable. Default 10s.
	WatchPatience time.Duration

	// Clock measures all of these. Default: baton.SystemClock.
	Clock baton.Clock
	own   bool // Transport is this package's
	// Logger is told when servers fail and come back. Default: slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Servers) == 0 {
		return c, &baton.InvalidArgumentError{Field: "Servers", Value: "", Want: "at least one server address"}
	}
	var bases []string
	for _, s := range c.Servers {
		base, err := parseServer(s)
		if err != nil {
			return c, err
		}
		if !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	c.Servers = bases
	for _, d := range []struct {
		name  string
		value *time.Duration
		or    time.Duration
	}{
		{"Timeout", &c.Timeout, 5 * time.Second},
		{"WatchIdle", &c.WatchIdle, 45 * time.Second},
		{"WatchPatience", &c.WatchPatience, 10 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.or
		}
		if *d.value < 0 {
			return c, &baton.InvalidArgumentError{Field: d.name, Value: *d.value, Want: "more than 0"}
		}
	}
	if c.Clock == nil {
		c.Clock = baton.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Transport == nil {
		c.Transport = newTransport(c.TLS)
		c.own = true
	}
	return c, nil
}

// parseServer makes a base URL, without a slash at its end, of an address.
func parseServer(s string) (string, error) {
	full := strings.TrimSpace(s)
	if !strings.Contains(full, "://") {
		full = "http://" + full
	}
	u, err := url.Parse(full)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", &baton.InvalidArgumentError{Field: "server", Value: s, Want: "an address such as http://127.0.0.1:7400"}
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// newTransport is tuned for many calls that wait: candidates in line hold a
// connection each, so none may be refused one, and those that become free are kept.
func newTransport(tlsConfig *tls.Config) *http.Transport {
	dialer := net.Dialer{
		Timeout: 2 * time.Second,
		// A waiting call sends nothing, so a peer that vanished is found by these alone.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   3 * time.Second,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   512,
		IdleConnTimeout:       60 * time.Second,
		ExpectContinueTimeout: time.Second,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
	}
}

// errRedirect refuses redirects: a request that carries a lease and a token goes to
// the servers that were named, and nowhere else.
func errRedirect(to string) error {
	return fmt.Errorf("redirected to %q, which is not followed: name the server's own address", to)
}
