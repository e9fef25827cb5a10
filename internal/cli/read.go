package cli

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"baton"
	"baton/api"
	"baton/store/remotestore"
)

func (a *app) leaderCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "leader GROUP",
		Short: "Who leads a group",
		Long: `Prints who leads the group, in which term and for how long.

If nobody leads it says so, and the exit code is 3.`,
		Example: `  baton leader payments
  baton leader payments -o json | jq -r .leader.node_id`,
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				resp, err := client.Leader(c.Context(), args[0])
				if err != nil {
					return err
				}
				if err := a.print(resp, func(w io.Writer) error { return printLeader(w, args[0], resp) }); err != nil {
					return err
				}
				if resp.Leader == nil {
					return &quietError{code: exitNotLeader}
				}
				return nil
			})
		},
	}
}

func printLeader(w io.Writer, group string, resp api.LeaderResponse) error {
	l := resp.Leader
	if l == nil {
		says := "nobody leads " + group
		if resp.Term > 0 {
			says += fmt.Sprintf("; the last term was %d", resp.Term)
		}
		_, err := fmt.Fprintln(w, says)
		return err
	}
	lines := []string{
		fmt.Sprintf("%s leads %s", l.NodeID, group),
		fmt.Sprintf("  term      %d", l.Term),
		fmt.Sprintf("  lease     %v left of %v", api.Duration(l.LeaseRemaining), api.Duration(l.LeaseTTL)),
		fmt.Sprintf("  instance  %s", l.InstanceID),
	}
	if len(l.Metadata) > 0 {
		lines = append(lines, "  metadata  "+pairs(l.Metadata))
	}
	if e := l.Ending; e != nil {
		ending := "  ending    " + e.Reason
		if e.Successor != "" {
			ending += " to " + e.Successor
		}
		if e.Note != "" {
			ending += ": " + e.Note
		}
		lines = append(lines, ending)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func (a *app) watchCommand() *cobra.Command {
	var cursor string
	var count int
	cmd := &cobra.Command{
		Use:   "watch GROUP",
		Short: "Follow the changes of a group's leadership",
		Long: `Prints the state of the group, then a line for every change, until Ctrl-C.

A server that restarts or fails is waited for, and others are asked meanwhile. A
line that is marked as a gap may have others missing before it.`,
		Example: `  baton watch payments
  baton watch payments -o json | jq -r 'select(.type == "LEADER_LOST") | .reason'
  baton watch payments --cursor 5f2c.1a.0      # go on after an event that was seen`,
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			if count < 0 {
				return usagef("--count is %d: want 0 or more", count)
			}
			return a.withClient(func(client *remotestore.Client) error {
				return a.watch(c.Context(), client, args[0], baton.Cursor(cursor), count)
			})
		},
	}
	cmd.Flags().StringVar(&cursor, "cursor", "", "start after this event, as far as it is retained")
	cmd.Flags().IntVar(&count, "count", 0, "end after this many events; 0 never ends")
	return cmd
}

func (a *app) watch(ctx context.Context, client *remotestore.Client, group string, after baton.Cursor, count int) error {
	seen := 0
	for event, err := range client.Watch(ctx, group, after) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		e := api.EventOf(event)
		if err := a.print(e, func(w io.Writer) error { return printEvent(w, e) }); err != nil {
			return err
		}
		if seen++; seen == count {
			return nil
		}
	}
	return nil
}

func printEvent(w io.Writer, e api.Event) error {
	line := fmt.Sprintf("%s  %-14s  term %d  ", stamp(e.Timestamp), e.Type, e.Term)
	switch {
	case e.LeaderNodeID != "":
		line += e.LeaderNodeID + " leads"
	case e.Reason == "":
		line += "nobody leads"
	default:
		line += fmt.Sprintf("nobody leads: %s %s", e.PreviousNodeID, e.Reason)
	}
	if e.Gap {
		line += "  (gap)"
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

func (a *app) membersCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "members GROUP",
		Short:             "Who takes part in a group, as this server has seen it",
		Example:           "  baton members payments",
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				resp, err := client.Members(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(resp, func(w io.Writer) error {
					var rows [][]string
					for _, m := range resp.Members {
						rows = append(rows, []string{m.NodeID, m.Role, stamp(m.LastSeen), m.InstanceID, pairs(m.Metadata)})
					}
					return table(w, []string{"NODE", "ROLE", "LAST SEEN", "INSTANCE", "METADATA"}, rows)
				})
			})
		},
	}
}

func (a *app) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "history GROUP",
		Short:             "Who led a group when, why it ended, and how long nobody did",
		Example:           "  baton history payments",
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				resp, err := client.History(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(resp, func(w io.Writer) error {
					var rows [][]string
					for _, t := range resp.Terms {
						rows = append(rows, historyRow(t))
					}
					return table(w, []string{"TERM", "NODE", "ELECTED", "LED FOR", "ENDED BY", "LEADERLESS BEFORE", "NOTE"}, rows)
				})
			})
		},
	}
}

func historyRow(t api.PastTerm) []string {
	ledFor := "still leads"
	if t.EndedAt != 0 {
		ledFor = api.Duration(t.EndedAt - t.ElectedAt).String()
	}
	return []string{
		strconv.FormatUint(t.Term, 10), t.NodeID, stamp(t.ElectedAt), ledFor, t.Reason,
		api.Duration(t.Gap).Round(time.Millisecond).String(), t.Note,
	}
}

// Version is set by release builds.
var Version = ""

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Which version of baton this is",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"`
				Go       string `json:"go"`
			}{Version: Version}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Go = info.GoVersion
				if v.Version == "" {
					v.Version = info.Main.Version
				}
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
			}
			if v.Version == "" {
				v.Version = "(devel)"
			}
			return a.print(v, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, strings.TrimSpace("baton "+v.Version+" "+v.Revision+" "+v.Go))
				return err
			})
		},
	}
}
