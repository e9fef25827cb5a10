package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"baton"
	"baton/server"
)

// exchange is one request on its way through its route.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
	// lasts is set when it takes as long as the client wants, which says nothing about the server.
	lasts bool
}

func (x *exchange) group() string { return x.r.PathValue("group_id") }

// acting is the request's context with who it is from, for what goes into the audit log.
func (x *exchange) acting() context.Context {
	return server.WithActor(x.r.Context(), x.r.RemoteAddr)
}

// route is one operation. Its handler returns the answer's status and body,
// or an error; a handler that has answered by itself returns a nil body.
type route struct {
	method, pattern string
	op              string
	handle          func(*exchange) (status int, body any, err error)
}

func (h *Handler) routeList() []route {
	const group = "/v1/groups/{group_id}"
	return []route{
		{"POST", group + "/campaign", "campaign", h.campaign},
		{"POST", group + "/renew", "renew", h.renew},
		{"POST", group + "/resign", "resign", h.resign},

		{"GET", group + "/leader", "leader", h.leader},
		{"GET", group + "/is-leader/{node_id}", "is_leader", h.isLeader},
		{"GET", group + "/watch", "watch", h.watch},
		{"GET", group + "/members", "members", h.members},
		{"GET", group + "/history", "history", h.history},

		{"GET", "/v1/groups", "list_groups", h.listGroups},
		{"POST", "/v1/groups", "create_group", h.createGroup},
		{"GET", group, "get_group", h.getGroup},
		{"PUT", group, "put_group", h.putGroup},
		{"DELETE", group, "delete_group", h.deleteGroup},
		{"POST", group + "/step-down", "step_down", h.stepDown},

		{"GET", "/v1/cluster", "cluster", h.clusterStatus},
		{"GET", "/v1/cluster/backup", "backup", h.backup},
		{"POST", "/v1/cluster/servers", "add_server", h.addServer},
		{"DELETE", "/v1/cluster/servers/{server_id}", "remove_server", h.removeServer},

		{"GET", "/healthz", "healthz", h.healthz},
		{"GET", "/readyz", "readyz", h.readyz},
		{"GET", "/metrics", "metrics", h.metricsPage},
		{"GET", "/openapi.json", "openapi", h.openAPI},
		{"GET", "/ui/", "ui", h.ui},
	}
}

// checkPath refuses paths that the mux would tidy up and redirect: whoever
// sends one has built it from an id that is no id, and must not end up somewhere else.
func checkPath(r *http.Request) error {
	path := r.URL.EscapedPath()
	if isTidy(path) {
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return &baton.InvalidArgumentError{Field: "path", Value: path, Want: "a path that begins with /"}
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		name, err := url.PathUnescape(s)
		if err != nil {
			return &baton.InvalidArgumentError{Field: "path", Value: path, Want: "valid percent-encoding"}
		}
		last := i == len(segments)-1
		if name == "." || name == ".." || name == "" && !(last && !strings.HasPrefix(path, "/v1/")) {
			return &baton.InvalidArgumentError{Field: "path", Value: path, Want: "segments that are neither empty nor . nor .."}
		}
	}
	return nil
}

// isTidy reports that nothing in the path needs a closer look.
func isTidy(path string) bool {
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	for i := range len(path) {
		if c := path[i]; c == '%' || c == '/' && (path[i+1] == '/' || path[i+1] == '.') {
			return false
		}
	}
	return true
}

// noRoute answers for paths and methods that do not exist.
func (h *Handler) noRoute(w http.ResponseWriter, r *http.Request) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.URL.Path == "/ui":
		http.Redirect(w, r, "/ui/", http.StatusMovedPermanently)
		return
	case r.URL.Path == "/" && reads && h.web != nil: // what a person types into a browser
		http.Redirect(w, r, "/ui/", http.StatusFound)
		return
	}
	var allowed []string
	for _, method := range []string{"DELETE", "GET", "POST", "PUT"} {
		other := *r
		other.Method = method
		if _, pattern := h.mux.Handler(&other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		h.fail(w, fmt.Errorf("path %q: %w", r.URL.Path, baton.ErrNotFound))
		return
	}
	allow := strings.Join(allowed, ", ")
	w.Header().Set("Allow", allow)
	h.failAs(w, http.StatusMethodNotAllowed, &baton.InvalidArgumentError{Field: "method", Value: r.Method, Want: allow})
}

// Routes lists what is served, as "METHOD /path/{parameter}".
func (h *Handler) Routes() []string {
	out := make([]string, 0, len(h.routes))
	for _, r := range h.routes {
		out = append(out, r.method+" "+r.pattern)
	}
	return out
}
