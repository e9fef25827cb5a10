package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"baton"
	"baton/fence"
	"baton/internal/fleet"
)

func (n *Node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, n.status()) })
	mux.HandleFunc("POST /next", n.next)
	mux.HandleFunc("POST /resign", n.resign)
	mux.Handle("GET /metrics", n.metrics.handler())
	return mux
}

func (n *Node) next(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	n.mu.Lock()
	sequencer := n.acting
	n.mu.Unlock()
	if sequencer == nil {
		n.redirect(w)
		return
	}
	// A little longer than a write: who waits for one is told what came of it.
	ctx, cancel := context.WithTimeoutCause(r.Context(), n.opt.writeTimeout()+time.Second, errLate)
	defer cancel()
	seq, err := sequencer.next(ctx)
	if err != nil {
		n.served.lost()
		n.metrics.nextFailed.Inc()
		refuse(w, noNumber(err))
		return
	}
	took := time.Since(began)
	n.served.answered(took)
	n.metrics.answered(took)
	// By hand: this is what is asked for thousands of times a second.
	body := make([]byte, 0, 64)
	body = append(body, `{"token":`...)
	body = strconv.AppendUint(body, uint64(sequencer.term), 10)
	body = append(body, `,"seq":`...)
	body = strconv.AppendInt(body, seq, 10)
	body = append(body, '}', '\n')
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// noNumber tells what is known not to be written from what may be.
func noNumber(err error) fleet.Refusal {
	if errors.Is(err, fence.ErrUnknown) {
		return fleet.Refusal{Code: fleet.CodeUnknown, Message: fmt.Sprintf("whether a number was taken is unknown, and nobody gets it: %v", err)}
	}
	return fleet.Refusal{Code: fleet.CodeUnavailable, Message: fmt.Sprintf("no number was given out: %v", err)}
}

// resign gives up the leadership on demand, as an operator's step-down would: the
// work stops, the lease is given back, and this node campaigns again behind the others.
func (n *Node) resign(w http.ResponseWriter, r *http.Request) {
	var wish fleet.Resignation
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&wish); err != nil {
		refuse(w, fleet.Refusal{Code: fleet.CodeConflict, Message: fmt.Sprintf("read the request: %v", err)})
		return
	}
	n.mu.Lock()
	led := n.led
	n.mu.Unlock()
	if led == nil || !led.Valid() {
		n.redirect(w)
		return
	}
	n.events.Log(n.about(led, fleet.Event{Type: fleet.AskedToResign, Reason: wish.To}))
	var err error
	if wish.To != "" {
		err = led.ResignTo(r.Context(), wish.To)
	} else {
		err = led.Resign(r.Context())
	}
	if err != nil && !errors.Is(err, baton.ErrNotLeader) {
		refuse(w, fleet.Refusal{Code: fleet.CodeConflict, Message: err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

// redirect says who leads.
func (n *Node) redirect(w http.ResponseWriter) {
	switch s := n.status(); s.Role {
	case fleet.RoleFollower:
		refuse(w, fleet.Refusal{Code: fleet.CodeNotLeader, Message: s.Leader.NodeID + " leads", Leader: s.Leader})
	case fleet.RoleLeader:
		refuse(w, fleet.Refusal{Code: fleet.CodeUnavailable, Message: "this node is taking over, or handing over"})
	default:
		refuse(w, fleet.Refusal{Code: fleet.CodeNoLeader, Message: "nobody is known to lead"})
	}
}

func refuse(w http.ResponseWriter, r fleet.Refusal) {
	status := http.StatusServiceUnavailable
	if r.Code == fleet.CodeNotLeader || r.Code == fleet.CodeConflict {
		status = http.StatusConflict
	}
	writeJSON(w, status, r)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}
