package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const maxBody = 64 << 10

// Handler takes orders over HTTP:
//
//	GET    /links          {node: fault|null, ...}
//	PUT    /links/{node}   a fault
//	DELETE /links/{node}   heals it
//	GET    /traffic        {node: traffic, ...}
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /links", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.Faults(), nil) })
	mux.HandleFunc("PUT /links/{node}", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		dec.DisallowUnknownFields()
		err := dec.Decode(&f)
		if err == nil {
			err = p.Set(r.PathValue("node"), f)
		}
		answer(w, f, err)
	})
	mux.HandleFunc("DELETE /links/{node}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, p.Heal(r.PathValue("node")))
	})
	mux.HandleFunc("GET /traffic", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.Traffic(), nil) })
	return mux
}

func answer(w http.ResponseWriter, v any, err error) {
	status := http.StatusOK
	switch {
	case errors.Is(err, ErrNoNode):
		status = http.StatusNotFound
	case err != nil:
		status = http.StatusBadRequest
	}
	if err != nil {
		v = map[string]string{"message": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// Client gives orders to the proxy at Address.
type Client struct {
	Address string
	HTTP    *http.Client
}

// Set makes the fault the only one that the node has.
func (c *Client) Set(ctx context.Context, node string, f Fault) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return c.order(ctx, http.MethodPut, node, body)
}

// Heal takes the node's fault away.
func (c *Client) Heal(ctx context.Context, node string) error {
	return c.order(ctx, http.MethodDelete, node, nil)
}

// Traffic is what went through the proxy so far, by node.
func (c *Client) Traffic(ctx context.Context) (map[string]Traffic, error) {
	var all map[string]Traffic
	err := c.do(ctx, http.MethodGet, "/traffic", nil, &all)
	return all, err
}

func (c *Client) order(ctx context.Context, method, node string, body []byte) error {
	if err := c.do(ctx, method, "/links/"+node, body, nil); err != nil {
		return fmt.Errorf("about node %s: %w", node, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	// A proxy that is not there says so at once; one that was started under load may take a while.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("order the proxy at %s (start it with `chaos proxy`): %w", c.Address, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("answered %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("order the proxy at %s: %w", c.Address, err)
	}
	return nil
}
