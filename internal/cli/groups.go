package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"baton/api"
	"baton/store/remotestore"
)

func (a *app) groupsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "groups",
		Short:   "All groups, registered or in use",
		Example: "  baton groups",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				resp, err := client.Groups(c.Context())
				if err != nil {
					return err
				}
				return a.print(resp, func(w io.Writer) error { return printGroups(w, resp.Groups...) })
			})
		},
	}
}

func printGroups(w io.Writer, groups ...api.Group) error {
	var rows [][]string
	for _, g := range groups {
		version := ""
		if g.Version != nil && *g.Version != 0 {
			version = strconv.FormatUint(*g.Version, 10)
		}
		rows = append(rows, []string{
			g.GroupID, millis(g.Policy.MinTTL), millis(g.Policy.MaxTTL), millis(g.Policy.RetryAfter),
			strings.Join(g.AllowedNodes, ","), version,
		})
	}
	return table(w, []string{"GROUP", "MIN TTL", "MAX TTL", "RETRY AFTER", "ALLOWED NODES", "VERSION"}, rows)
}

func (a *app) groupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Register, change and forget groups",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.AddCommand(a.groupCreateCommand(), a.groupUpdateCommand(), a.groupShowCommand(), a.groupDeleteCommand())
	return cmd
}

// policyFlags are the flags of a registration.
type policyFlags struct {
	minTTL, maxTTL, retryAfter time.Duration
	allow                      []string
}

func (p *policyFlags) add(f *pflag.FlagSet) {
	f.DurationVar(&p.minTTL, "min-ttl", 0, "shortest lease that may be asked for; 0 is the server's default")
	f.DurationVar(&p.maxTTL, "max-ttl", 0, "longest lease that may be asked for; 0 is the server's default")
	f.DurationVar(&p.retryAfter, "retry-after", 0, "how long losers are told to wait; 0 goes by what is left of the lease")
	f.StringSliceVar(&p.allow, "allow", nil, "nodes that may campaign, with commas; none allows all")
}

// apply changes what was given: all of it, or only the flags that were set.
func (p *policyFlags) apply(g *api.Group, f *pflag.FlagSet) {
	if f.Changed("min-ttl") {
		g.Policy.MinTTL = api.MillisUp(p.minTTL)
	}
	if f.Changed("max-ttl") {
		g.Policy.MaxTTL = api.Millis(p.maxTTL)
	}
	if f.Changed("retry-after") {
		g.Policy.RetryAfter = api.MillisUp(p.retryAfter)
	}
	if f.Changed("allow") {
		g.AllowedNodes = p.allow
	}
}

func (a *app) groupCreateCommand() *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use:     "create GROUP",
		Short:   "Register a group",
		Example: "  baton group create payments --min-ttl 2s --max-ttl 15s --allow node-1,node-2,node-3",
		Args:    exactly("GROUP"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				g := api.Group{GroupID: args[0]}
				p.apply(&g, c.Flags())
				out, err := client.CreateGroup(c.Context(), g)
				if err != nil {
					return err
				}
				return a.print(out, func(w io.Writer) error { return printGroups(w, out) })
			})
		},
	}
	p.add(cmd.Flags())
	return cmd
}

func (a *app) groupUpdateCommand() *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use:   "update GROUP",
		Short: "Change a group's registration",
		Long: `Changes what is given by flags and leaves the rest as it is. If somebody else
changes the group at the same moment, nothing is changed, and the exit code is 6.`,
		Example: `  baton group update payments --max-ttl 30s
  baton group update payments --allow ""       # allow all nodes`,
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				g, err := client.Group(c.Context(), args[0])
				if err != nil {
					return err
				}
				p.apply(&g, c.Flags())
				out, err := client.PutGroup(c.Context(), g)
				if err != nil {
					return err
				}
				return a.print(out, func(w io.Writer) error { return printGroups(w, out) })
			})
		},
	}
	p.add(cmd.Flags())
	return cmd
}

func (a *app) groupShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show GROUP",
		Short:             "A group's registration",
		Example:           "  baton group show payments",
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				g, err := client.Group(c.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(g, func(w io.Writer) error { return printGroups(w, g) })
			})
		},
	}
}

func (a *app) groupDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete GROUP",
		Short: "Forget a group that nobody leads",
		Long: `Forgets the group's registration and history. Its terms are not forgotten: the
next one is higher than all before. A group that is held is a conflict (exit code 6).`,
		Example:           "  baton group delete payments",
		Args:              exactly("GROUP"),
		ValidArgsFunction: a.completeGroup,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				if err := client.DeleteGroup(c.Context(), args[0]); err != nil {
					return err
				}
				return a.print(api.OKResponse{OK: true}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "deleted %s\n", args[0])
					return err
				})
			})
		},
	}
}
