package raftnode

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

// ErrStarting: the server is not ready to answer yet.
var ErrStarting = errors.New("the server is starting")

// Client asks other servers over HTTP.
type Client struct{ client *http.Client }

// NewClient returns a client that connects by dial.
func NewClient(dial Dialer) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext:           dial,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       time.Minute,
		ResponseHeaderTimeout: 0, // a wait in line takes as long as it takes
		DisableCompression:    true,
	}}}
}

// Close ends connections that nobody uses.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Ask posts a question as JSON and returns what was answered.
func (c *Client) Ask(ctx context.Context, to Addressee, path string, question any) ([]byte, error) {
	b, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	return c.Post(ctx, to, path, b)
}

// Post posts to exactly this server. One that is not it: ErrNotMeant.
func (c *Client) Post(ctx context.Context, to Addressee, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	to.Put(req.Header)
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, Refusal(to, resp, answer)
	}
	return answer, nil
}

// Refusal is what an answer with this status and body means.
func Refusal(to Addressee, resp *http.Response, body []byte) error {
	switch resp.StatusCode {
	case http.StatusServiceUnavailable:
		return ErrStarting
	case http.StatusMisdirectedRequest:
		return fmt.Errorf("%w: %s", ErrNotMeant, bytes.TrimSpace(body))
	}
	return fmt.Errorf("%s answered %s: %s", to.Address, resp.Status, bytes.TrimSpace(body))
}
