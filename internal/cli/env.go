package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envName is the variable of a flag.
func envName(flag string) string {
	return "BATON_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// hasEnv: help is a question, not a setting; and what breaks glass is said
// each time, never inherited: which term to end, and at once.
func hasEnv(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "term" && f.Name != "immediate"
}

// bindEnv sets the flags of c that were not given from the environment.
func bindEnv(c *cobra.Command, lookup func(string) (string, bool)) error {
	if lookup == nil {
		return nil
	}
	var failed error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || !hasEnv(f) || failed != nil {
			return
		}
		value, ok := lookup(envName(f.Name))
		if !ok || value == "" {
			return
		}
		if err := c.Flags().Set(f.Name, value); err != nil {
			failed = usagef("$%s is %q: %w", envName(f.Name), value, err)
		}
	})
	return failed
}

// documentEnv writes each flag's variable into its help.
func documentEnv(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if hasEnv(f) && !strings.Contains(f.Usage, "[$") {
			f.Usage += " [$" + envName(f.Name) + "]"
		}
	})
	for _, sub := range c.Commands() {
		documentEnv(sub)
	}
}
