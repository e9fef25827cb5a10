package lab

import (
	"fmt"
	"slices"
	"strings"
)

// choice is the part of a command that says what is run on what.
func choice(only, backends []string) string {
	return fmt.Sprintf("--only %s --backend %s", strings.Join(only, ","), strings.Join(backends, ","))
}

// commandsOf make these results again, and no others: experiments that were run in the same
// way on the same backends share one.
func commandsOf(results []Result) []string {
	const chosen = "\x00" // where the choice is, in what is else the same
	type group struct {
		rest           string
		only, backends []string
	}
	var byExperiment []group
	for _, r := range byNumber(results) {
		number := fmt.Sprint(r.Number)
		rest := strings.Replace(r.Command, choice([]string{number}, []string{r.Backend}), chosen, 1)
		i := slices.IndexFunc(byExperiment, func(g group) bool { return g.rest == rest && g.only[0] == number })
		if i < 0 {
			i, byExperiment = len(byExperiment), append(byExperiment, group{rest: rest, only: []string{number}})
		}
		byExperiment[i].backends = append(byExperiment[i].backends, r.Backend)
	}
	var groups []group
	for _, g := range byExperiment {
		i := slices.IndexFunc(groups, func(o group) bool { return o.rest == g.rest && slices.Equal(o.backends, g.backends) })
		if i < 0 {
			groups = append(groups, g)
			continue
		}
		groups[i].only = append(groups[i].only, g.only...)
	}
	var commands []string
	for _, g := range groups {
		commands = append(commands, strings.Replace(g.rest, chosen, choice(g.only, g.backends), 1))
	}
	return commands
}
