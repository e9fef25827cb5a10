package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"baton"
	"baton/api"
	"baton/store/remotestore"
)

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Look at the cluster of servers, and change it",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.AddCommand(a.clusterStatusCommand(), a.clusterAddCommand(), a.clusterRemoveCommand())
	return cmd
}

func (a *app) clusterStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Who leads the cluster, and how far each server is",
		Long: `Shows the cluster as the server that answers sees it. APPLIED is the last entry of
the log that a server has applied, LAG how many it is behind; servers that have
applied the same have the same STATE. A server that does not answer shows neither.`,
		Example: `  baton cluster status
  baton cluster status --server http://10.0.0.2:7400 -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				st, err := client.Cluster(c.Context())
				if err != nil {
					return err
				}
				return a.print(st, func(w io.Writer) error { return printCluster(w, st) })
			})
		},
	}
}

func printCluster(w io.Writer, st api.ClusterResponse) error {
	leads := st.LeaderID + " leads"
	if st.LeaderID == "" {
		leads = "nobody leads"
	}
	contact := ""
	if st.State != "leader" {
		contact = fmt.Sprintf(", heard of the leader %v ago", api.Duration(st.LastContact))
	}
	if _, err := fmt.Fprintf(w, "cluster %s in raft term %d: %s; as seen by %s (%s%s); %d leases\n",
		st.ClusterID, st.RaftTerm, leads, st.ServerID, st.State, contact, st.Leases); err != nil {
		return err
	}
	var rows [][]string
	for _, s := range st.Servers {
		role := "voter"
		if !s.Voter {
			role = "no vote"
		}
		if s.Leader {
			role = "leader"
		}
		row := []string{s.ServerID, s.Address, role, "", "", "does not answer"}
		if s.Reached {
			row = []string{s.ServerID, s.Address, role, strconv.FormatUint(s.AppliedIndex, 10), strconv.FormatUint(s.Lag, 10), s.StateHash[:min(12, len(s.StateHash))]}
		}
		rows = append(rows, row)
	}
	return table(w, []string{"SERVER", "ADDRESS", "ROLE", "APPLIED", "LAG", "STATE"}, rows)
}

func (a *app) clusterAddCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "add SERVER=HOST:PORT",
		Short: "Make a server part of the cluster",
		Long: `Takes in a server that was started with --join, by its name and the address of its
peer port. It has no vote until it has caught up; the command waits for that. All
other servers must answer meanwhile, so a dead one is removed first.`,
		Example: `  baton server --server-id s4 --peer 10.0.0.4:7402 --join ...    # on the new machine
  baton cluster add s4=10.0.0.4:7402`,
		Args: exactly("SERVER=HOST:PORT"),
		RunE: func(c *cobra.Command, args []string) error {
			id, address, ok := strings.Cut(args[0], "=")
			if !ok {
				return usagef("%q is not of the form SERVER=HOST:PORT", args[0])
			}
			return a.withClient(func(client *remotestore.Client) error {
				ctx, cancel := context.WithTimeout(c.Context(), wait)
				defer cancel()
				if err := addServer(ctx, client, api.AddServerRequest{ServerID: id, Address: address}); err != nil {
					if c.Context().Err() != nil {
						return c.Context().Err()
					}
					return err
				}
				return a.print(api.OKResponse{OK: true}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is part of the cluster and has a vote\n", id)
					return err
				})
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long it may take the server to catch up")
	return cmd
}

// addServer asks until the server has a vote, or ctx ends, or it is refused.
func addServer(ctx context.Context, client *remotestore.Client, req api.AddServerRequest) error {
	last := errors.New("there was no answer")
	for {
		err := client.AddServer(ctx, req)
		if err == nil || votes(ctx, client, req) {
			return nil
		}
		if ctx.Err() == nil {
			if !errors.Is(err, baton.ErrUnavailable) {
				return err
			}
			last = err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return &baton.UnavailableError{Op: "add server " + req.ServerID, Err: fmt.Errorf("it has no vote yet: %w", last)}
		}
	}
}

// votes reports whether what was asked for is so, whoever did it.
func votes(ctx context.Context, client *remotestore.Client, req api.AddServerRequest) bool {
	st, err := client.Cluster(ctx)
	if err != nil {
		return false
	}
	for _, s := range st.Servers {
		if s.ServerID == req.ServerID {
			return s.Voter && s.Reached && s.Address == req.Address
		}
	}
	return false
}

func (a *app) clusterRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove SERVER",
		Short: "Take a server out of the cluster",
		Long: `Takes a server out, dead or alive; the rest must have a majority. Stop it, if it
still runs: it goes on asking for a place. Before its name is used again, its data
directory has to go.`,
		Example: "  baton cluster remove s3",
		Args:    exactly("SERVER"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				if err := client.RemoveServer(c.Context(), args[0]); err != nil {
					return err
				}
				return a.print(api.OKResponse{OK: true}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is no longer part of the cluster\n", args[0])
					return err
				})
			})
		},
	}
}
