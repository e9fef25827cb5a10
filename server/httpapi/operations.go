package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"baton"
	"baton/api"
	"baton/web"
)

func (h *Handler) healthz(*exchange) (int, any, error) {
	return http.StatusOK, api.HealthResponse{Status: "ok"}, nil
}

// readyz also fails once the server shuts down, so that load balancers go elsewhere first.
func (h *Handler) readyz(x *exchange) (int, any, error) {
	select {
	case <-h.closing:
		return 0, nil, fmt.Errorf("shutting down: %w", baton.ErrUnavailable)
	default:
	}
	if err := h.svc.Ready(x.r.Context()); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.ReadyResponse{Status: "ready", Guarantees: api.GuaranteesOf(h.svc.Guarantees())}, nil
}

func (h *Handler) metricsPage(x *exchange) (int, any, error) {
	h.allowWrite(x.w)
	h.metrics.ServeHTTP(x.w, x.r)
	return 0, nil, nil
}

func (h *Handler) openAPI(x *exchange) (int, any, error) {
	h.allowWrite(x.w)
	x.w.Header().Set("Content-Type", "application/json")
	_, _ = x.w.Write(api.OpenAPI())
	return 0, nil, nil
}

func (h *Handler) ui(x *exchange) (int, any, error) {
	if h.web == nil {
		return 0, nil, fmt.Errorf("this server has no dashboard: %w", baton.ErrNotFound)
	}
	if !web.Has(strings.TrimPrefix(x.r.URL.Path, "/ui/")) {
		return 0, nil, fmt.Errorf("path %q: %w", x.r.URL.Path, baton.ErrNotFound)
	}
	h.allowWrite(x.w)
	h.web.ServeHTTP(x.w, x.r)
	return 0, nil, nil
}
