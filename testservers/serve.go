package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// order is one line of standard input. Orders are carried out one after the
// other, and each is answered by one line of standard output.
//
//	{"cmd":"start","kind":"postgres","settings":{"fsync":"off"}}
//	{"cmd":"pause","server":"postgres-1"}
//
// pause and resume stop and continue all processes of the server; kill ends
// them as a power cut would; restart starts it again, stopping it first if it
// runs, with the same data and ports; stop ends it and throws its data away.
// cut holds back what passes through the proxy, in one direction
// ("to-server", "to-client") or "both"; refuse resets all connections and
// refuses new ones; heal undoes both.
//
// When standard input ends, all servers are stopped and all data is removed.
type order struct {
	Cmd       string            `json:"cmd"`
	Server    string            `json:"server,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Settings  map[string]string `json:"settings,omitempty"`
	Direction string            `json:"direction,omitempty"`
}

// answer is one line of standard output. Server is set when one was started.
type answer struct {
	OK          bool        `json:"ok"`
	Error       string      `json:"error,omitempty"`
	Unavailable bool        `json:"unavailable,omitempty"` // the server cannot be had on this machine
	Server      *serverInfo `json:"server,omitempty"`
}

// serverInfo describes a server that runs.
type serverInfo struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	URL    string `json:"url"`    // through the proxy that can be cut
	Direct string `json:"direct"` // past it
	PID    int    `json:"pid"`
	Dir    string `json:"dir"`
}

// serve starts the named kinds, then carries out orders until in or ctx ends.
func serve(ctx context.Context, in io.Reader, out io.Writer, kinds []string) (err error) {
	fleet, err := newFleet()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()

	reply := json.NewEncoder(out)
	for _, kind := range kinds {
		if err := reply.Encode(fleet.obey(ctx, order{Cmd: "start", Kind: kind})); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}

	// The reader is left behind, blocked in a read, when ctx ends first: the
	// process ends right after.
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(in); scan.Scan(); {
			select {
			case lines <- scan.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, open := <-lines:
			if !open {
				return nil
			}
			var o order
			a := answer{}
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				a.Error = fmt.Sprintf("parse order %q: %v", line, err)
			} else {
				a = fleet.obey(ctx, o)
			}
			if err := reply.Encode(a); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
		}
	}
}

// obey carries out one order.
func (f *fleet) obey(ctx context.Context, o order) answer {
	info, err := f.carryOut(ctx, o)
	if err != nil {
		var missing *unavailableError
		return answer{Error: err.Error(), Unavailable: errors.As(err, &missing)}
	}
	return answer{OK: true, Server: info}
}

func (f *fleet) carryOut(ctx context.Context, o order) (*serverInfo, error) {
	if o.Cmd == "start" {
		s, err := f.start(ctx, o.Kind, o.Settings)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", o.Kind, err)
		}
		return s.info(), nil
	}
	s, ok := f.servers[o.Server]
	if !ok {
		return nil, fmt.Errorf("%s: no server named %q runs here", o.Cmd, o.Server)
	}
	var err error
	switch o.Cmd {
	case "pause":
		err = s.pause()
	case "resume":
		err = s.resume()
	case "kill":
		err = s.kill()
	case "restart":
		if err = s.restart(ctx); err == nil {
			return s.info(), nil
		}
	case "stop":
		err = f.stop(s)
	case "cut":
		err = s.proxy.cut(o.Direction)
	case "refuse":
		err = s.proxy.refuse()
	case "heal":
		err = s.proxy.heal()
	default:
		err = errors.New("unknown order")
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.Cmd, o.Server, err)
	}
	return nil, nil
}
