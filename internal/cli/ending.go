package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"baton/api"
	"baton/store/remotestore"
)

func (a *app) stepDownCommand() *cobra.Command {
	var req api.StepDownRequest
	cmd := &cobra.Command{
		Use:   "step-down GROUP",
		Short: "Make the leader of a group hand over",
		Long: `Asks the leader to stop its work and give the lease back; it learns of it with
its next renewal. If it does not, its lease runs out.

With --immediate the group opens at once, while the old leader may still be
working: only fencing keeps the work safe then.`,
		Example: `  baton step-down payments --reason "rack 7 goes down"
  baton step-down payments --term 42 --immediate --reason "it hangs"`,
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			return a.stepDown(c.Context(), args[0], req)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&req.Term, "term", 0, "end this term only; 0 is whichever leads now")
	f.StringVar(&req.Reason, "reason", "", "why, for the history and the audit log")
	f.BoolVar(&req.Immediate, "immediate", false, "open the group while the leader may still be working")
	f.StringVar(&req.Successor, "successor", "", "the node that goes first; it must be waiting in line")
	return cmd
}

func (a *app) transferCommand() *cobra.Command {
	var req api.StepDownRequest
	cmd := &cobra.Command{
		Use:   "transfer GROUP NODE",
		Short: "Make the leader of a group hand over to another node",
		Long: `Asks the leader to stop and give the lease back, and lets NODE have the next
turn. NODE must be waiting in line; if it is not, that is a conflict (exit code 6).`,
		Example:           `  baton transfer payments node-2 --reason "to the bigger machine"`,
		Args:              exactly("GROUP", "NODE"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			req.Successor = args[1]
			return a.stepDown(c.Context(), args[0], req)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&req.Term, "term", 0, "end this term only; 0 is whichever leads now")
	f.StringVar(&req.Reason, "reason", "", "why, for the history and the audit log")
	f.BoolVar(&req.Immediate, "immediate", false, "open the group while the leader may still be working")
	return cmd
}

// stepDown looks which term leads if none was given, so that what it sends names one
// leadership exactly and may be repeated.
func (a *app) stepDown(ctx context.Context, group string, req api.StepDownRequest) error {
	req.Reason = cmp.Or(req.Reason, "from the command line, by "+whoami())
	return a.withClient(func(client *remotestore.Client) error {
		if req.Term == 0 {
			leader, err := leads(ctx, client, group)
			if err != nil {
				return err
			}
			req.Term = leader.Term
		}
		out, err := client.StepDown(ctx, group, req)
		if err != nil {
			return err
		}
		return a.print(out, func(w io.Writer) error {
			what := "%s was asked to hand over %s, term %d\n"
			if req.Immediate {
				what = "%s no longer leads %s, term %d is over\n"
			}
			_, err := fmt.Fprintf(w, what, cmp.Or(out.NodeID, "the leader"), group, out.Term)
			return err
		})
	})
}

func whoami() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
