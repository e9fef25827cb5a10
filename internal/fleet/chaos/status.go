package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"baton/internal/fleet"
)

// showStatus prints what all nodes say of themselves, and waits for the fleet to settle
// before it does, if it is told to. Nobody leading is an error.
func showStatus(ctx context.Context, f *fleet.File, o options, stdout io.Writer) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	var wait time.Duration
	if o.settled {
		wait = o.wait
	}
	statuses, settled := untilSettled(ctx, f, hc, wait)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if o.output == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(statuses); err != nil {
			return err
		}
	} else if err := table(stdout, f, statuses); err != nil {
		return err
	}
	if len(fleet.Claims(statuses)) == 0 {
		return fmt.Errorf("%w: %d of %d answered", errNoLeader, len(statuses), len(f.Nodes))
	}
	if o.settled && !settled {
		return fmt.Errorf("%w: waited %v", errUnsettled, o.wait)
	}
	return nil
}

// untilSettled asks all nodes until the fleet has settled, once at least and for at most wait.
func untilSettled(ctx context.Context, f *fleet.File, hc *http.Client, wait time.Duration) (statuses map[string]fleet.Status, settled bool) {
	for late := time.After(wait); ; {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		statuses = f.Statuses(asking, hc)
		cancel()
		if _, settled = f.Settled(statuses); settled || wait <= 0 {
			return statuses, settled
		}
		select {
		case <-time.After(lookEvery):
		case <-late:
			return statuses, false
		case <-ctx.Done():
			return statuses, false
		}
	}
}

func table(stdout io.Writer, f *fleet.File, statuses map[string]fleet.Status) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NODE\tROLE\tTOKEN\tTRUSTED FOR\tREFUSED\tPROCESS") // Flush tells
	for _, n := range f.Nodes {
		s, ok := statuses[n.ID]
		if !ok {
			_, _ = fmt.Fprintf(w, "%s\tno answer\t-\t-\t-\t-\n", n.ID)
			continue
		}
		token, left := "-", "-"
		if s.Role == fleet.RoleLeader {
			token, left = fmt.Sprint(s.FenceToken), fmt.Sprintf("%d ms", s.LeaseTTLRemainingMS)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", n.ID, s.Role, token, left, s.WritesRefused, s.PID)
	}
	return w.Flush()
}
