package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"baton"
)

type loopbackKey struct{}

// onListener notes, for all requests that l will bring, whether it listens on loopback.
func onListener(l net.Listener) context.Context {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return context.WithValue(context.Background(), loopbackKey{}, ok && tcp.IP.IsLoopback())
}

// checkHost refuses requests to a server on loopback under a name that is not
// loopback's. Anybody can let a name of theirs mean 127.0.0.1; a page under
// that name, open in a browser on this machine, could then read and step down
// as if it were the dashboard. Without a name, no browser has sent it.
func (h *Handler) checkHost(r *http.Request) error {
	if local, _ := r.Context().Value(loopbackKey{}).(bool); !local || r.Host == "" {
		return nil
	}
	if last := h.lastHost.Load(); last != nil && *last == r.Host {
		return nil
	}
	name := hostName(r.Host)
	if isLoopbackName(name) || slices.ContainsFunc(h.cfg.Hosts, func(allowed string) bool {
		return allowed == "*" || strings.EqualFold(allowed, name)
	}) {
		host := r.Host
		h.lastHost.Store(&host)
		return nil
	}
	return fmt.Errorf("host %q: %w: this server listens on loopback, so it is called localhost, by a loopback address, or by a name that it was configured with", name, baton.ErrNotAllowed)
}

func hostName(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil { // it has no port
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}

func isLoopbackName(name string) bool {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().IsLoopback()
	}
	name = strings.ToLower(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
