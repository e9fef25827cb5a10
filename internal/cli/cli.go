// Package cli is the baton command: its commands, their flags and what they
// print. The program in cmd/baton only starts it.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"baton"
	"baton/api"
	"baton/store/remotestore"
)

// DefaultServer is where commands look for a server that nobody named.
const DefaultServer = "http://127.0.0.1:7400"

// Program is one run of the command.
type Program struct {
	Stdout, Stderr io.Writer
	// LookupEnv finds BATON_* variables; nil finds none.
	LookupEnv func(string) (string, bool)
}

// Main runs the command with these arguments and returns its exit code. The
// end of ctx is the user's wish to stop.
func (p Program) Main(ctx context.Context, args []string) int {
	a := &app{Program: p}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	a.report(err)
	return exitCode(err)
}

// app is what the commands share.
type app struct {
	Program

	servers []string
	token   string
	timeout time.Duration
	output  string
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "baton",
		Short: "Elects exactly one leader per group, and keeps its work correct",
		Long: `Baton makes exactly one node of a fleet do the work that must run once.

"baton server" is the service; the other commands talk to one. They find it by
--server, else $BATON_SERVER, else ` + DefaultServer + `. Every flag can be set
as a variable too: --log-level is $BATON_LOG_LEVEL.`,
		Example: `  baton server                                 # a server on this machine
  baton campaign payments --node node-1        # lead until Ctrl-C
  baton leader payments                        # who leads?
  baton watch payments                         # follow the changes`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	f := root.PersistentFlags()
	f.StringSliceVar(&a.servers, "server", []string{DefaultServer}, "address of a server; several, of one cluster, with commas")
	f.StringVar(&a.token, "token", "", "bearer token to authenticate with")
	f.DurationVar(&a.timeout, "timeout", 5*time.Second, "how long a request may take, with all its repetitions")
	f.StringVarP(&a.output, "output", "o", "text", "how to print: text or json")
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)))

	root.AddCommand(
		a.serverCommand(),
		a.leaderCommand(), a.watchCommand(), a.membersCommand(), a.historyCommand(),
		a.groupsCommand(), a.groupCommand(),
		a.campaignCommand(), a.stepDownCommand(), a.transferCommand(),
		a.clusterCommand(), a.storesCommand(),
		a.backupCommand(), a.restoreCommand(),
		a.versionCommand(), exitCodesTopic(),
	)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w (see %q)", err, c.CommandPath()+" --help")
	})
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := bindEnv(c, a.LookupEnv); err != nil {
			return err
		}
		if a.output != "text" && a.output != "json" {
			return usagef("--output is %q: want text or json", a.output)
		}
		return nil
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = noArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
	documentEnv(root)
	return root
}

// must is for mistakes in this package's own tables.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// noArgs, exactly and the like are cobra's checks with our exit code.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unknown command or argument %q (see %q)", args[0], c.CommandPath()+" --help")
	}
	return nil
}

func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("want %s, and there are %d arguments (see %q)", strings.Join(names, " "), len(args), c.CommandPath()+" --help")
		}
		return nil
	}
}

// report says on stderr why a command failed: one line, or in JSON the API's error.
func (a *app) report(err error) {
	code := exitCode(err)
	var quiet *quietError
	if err == nil || errors.As(err, &quiet) {
		return
	}
	if code == exitInterrupted {
		_, _ = fmt.Fprintln(a.Stderr, "baton: interrupted")
		return
	}
	if a.output == "json" {
		_, body := api.ErrorOf(err, time.Now())
		switch code {
		case exitUsage:
			if body.Code != "INVALID_TTL" {
				body.Code, body.RetryAfter = "INVALID_ARGUMENT", nil
			}
		case exitFailure:
			body.Code, body.RetryAfter = "FAILED", nil
		}
		_ = json.NewEncoder(a.Stderr).Encode(body)
		return
	}
	// Further lines are commands to be copied, if they are indented.
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	text = strings.ReplaceAll(text, ";   ", "\n  ")
	_, _ = fmt.Fprintln(a.Stderr, "baton:", text)
}

func (a *app) clientConfig() remotestore.Config {
	return remotestore.Config{
		Servers: a.servers, Token: a.token, Timeout: a.timeout,
		Logger: slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// withClient runs f with a client of the servers that the user named.
func (a *app) withClient(f func(c *remotestore.Client) error) error {
	c, err := remotestore.NewClient(a.clientConfig())
	if err != nil {
		return &usageError{err: err}
	}
	defer func() { _ = c.Close() }() // never fails
	return f(c)
}

// completeGroup offers the names of groups to the shell.
func (a *app) completeGroup(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || bindEnv(c, a.LookupEnv) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.timeout = min(a.timeout, time.Second)
	var names []string
	_ = a.withClient(func(client *remotestore.Client) error { // nothing to offer, if it fails
		groups, err := client.Groups(c.Context())
		for _, g := range groups.Groups {
			names = append(names, g.GroupID)
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// leads is the group's leader, or a *baton.NotLeaderError if there is none.
func leads(ctx context.Context, c *remotestore.Client, group string) (*api.Leader, error) {
	resp, err := c.Leader(ctx, group)
	if err != nil {
		return nil, err
	}
	if resp.Leader == nil {
		return nil, fmt.Errorf("group %s: %w: nobody leads, the last term was %d", group, baton.ErrNotLeader, resp.Term)
	}
	return resp.Leader, nil
}
