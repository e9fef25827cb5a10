package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"baton"
	"baton/store/remotestore"
)

// campaigning is what campaign was asked for.
type campaigning struct {
	group    string
	node     string
	ttl      time.Duration
	wait     time.Duration
	metadata map[string]string
}

func (a *app) campaignCommand() *cobra.Command {
	var k campaigning
	cmd := &cobra.Command{
		Use:   "campaign GROUP",
		Short: "Lead a group until Ctrl-C",
		Long: `Waits in line until this node is elected, prints the term, holds the lease, and
gives it back at Ctrl-C or SIGTERM.

If the leadership is lost, or ended by an operator, it says why, and the exit code is 3. It
campaigns once; a program that should campaign again uses the library.`,
		Example: `  baton campaign payments
  baton campaign payments --node node-1 --ttl 5s --meta zone=az-a
  baton campaign payments --wait 10s || echo "somebody else leads"`,
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			k.group = args[0]
			return a.campaign(c.Context(), k)
		},
	}
	host, _ := os.Hostname() // --node says what is wrong with an empty one
	f := cmd.Flags()
	f.StringVar(&k.node, "node", host, "who campaigns; every process needs a name of its own")
	f.DurationVar(&k.ttl, "ttl", 10*time.Second, "how long the group stays closed if this process vanishes")
	f.DurationVar(&k.wait, "wait", 0, "give up if it is not elected by then; 0 waits for ever")
	f.StringToStringVar(&k.metadata, "meta", nil, "what others are shown about this node: key=value,...")
	return cmd
}

// elected is what is printed for programs, one line for each change.
type elected struct {
	Event      string     `json:"event"` // elected, resigned, lost
	Group      string     `json:"group_id"`
	NodeID     string     `json:"node_id"`
	InstanceID string     `json:"instance_id"`
	Term       baton.Term `json:"term"`
	Cause      string     `json:"cause,omitempty"`
}

func (a *app) campaign(ctx context.Context, k campaigning) (err error) {
	if k.wait < 0 {
		return usagef("--wait is %v: want 0 or more", k.wait)
	}
	store, err := remotestore.New(ctx, a.clientConfig())
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // never fails
	elector, err := baton.NewElector(store, baton.Config{
		Group: k.group, NodeID: k.node, Metadata: k.metadata, TTL: k.ttl,
		Logger: slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer func() {
		if failed := elector.Close(); err == nil {
			err = failed
		}
	}()

	waiting, cancel := ctx, context.CancelFunc(func() {})
	if k.wait > 0 {
		waiting, cancel = context.WithTimeout(ctx, k.wait)
	}
	leadership, err := elector.Campaign(waiting)
	cancel()
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("group %s: %w: not elected within %v", k.group, baton.ErrNotLeader, k.wait)
		}
		return err
	}
	return a.hold(ctx, k, leadership)
}

// hold prints what becomes of the leadership, and resigns when ctx ends.
func (a *app) hold(ctx context.Context, k campaigning, l *baton.Leadership) error {
	now := elected{Event: "elected", Group: k.group, NodeID: k.node, InstanceID: l.Token().InstanceID, Term: l.Term()}
	if err := a.printElected(now, "%s leads %s, term %d\n"); err != nil {
		return errors.Join(err, l.Resign(context.WithoutCancel(ctx)))
	}
	select {
	case <-l.Context().Done():
		// There is no work to stop, so what is left of the lease is given back.
		now.Event, now.Cause = "lost", fmt.Sprint(l.Cause())
		_ = l.Resign(context.WithoutCancel(ctx)) // over already, as a rule
		if err := a.printElected(now, "%s no longer leads %s, term %d: "+now.Cause+"\n"); err != nil {
			return err
		}
		return &quietError{code: exitNotLeader}
	case <-ctx.Done():
		if err := l.Resign(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, baton.ErrNotLeader) {
			return fmt.Errorf("resign: %w", err)
		}
		now.Event = "resigned"
		return a.printElected(now, "%s resigned %s, term %d\n")
	}
}

func (a *app) printElected(e elected, format string) error {
	return a.print(e, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format, e.NodeID, e.Group, e.Term)
		return err
	})
}
