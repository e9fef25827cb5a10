package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Experiment is a question that a few runs of a fleet answer.
type Experiment struct {
	// Number is the mission's.
	Number   int
	Name     string
	Question string
	// Arms are run one after the other, each with a fleet of its own.
	Arms func(s Setting) []Arm
	// Plot draws what is particular to this experiment; the timelines of all
	// arms are drawn anyway. It may be nil.
	Plot func(r Result) ([]Figure, error)
	// Findings says in sentences what the result shows.
	Findings func(r Result) []string
}

// Setting is what an experiment is run with.
type Setting struct {
	Profile Profile
	Backend string
	// Broken makes the nodes elect wrongly on purpose, as the flag
	// -unsafe-trust of the node says; the checks must catch it.
	Broken string
}

// Arm is one run of a fleet.
type Arm struct {
	Name string
	// Says what is special about it.
	Says string
	// TTL is the lease's.
	TTL time.Duration
	// FencingOff makes the resource take whatever comes.
	FencingOff bool
	// WriteDelay is the time between a node's last look at its lease and the
	// write that it allows: what a pause has to hit.
	WriteDelay time.Duration
	// Linger makes leaders go on writing for this long after their leadership
	// has ended, as those do that never look.
	Linger time.Duration
	// Broken is Setting.Broken, where the arm is about the elector.
	Broken string
	// Script does to the fleet what is to be done.
	Script func(ctx context.Context, s *Stage) error
	// Checks judge the record.
	Checks []Check
	// Takes is about how long it takes, for the progress shown.
	Takes time.Duration
}

// Profile is how much is done.
type Profile struct {
	Name string `json:"name"`
	// TTL is that of all arms that do not vary it, TTLs those of the ones that do.
	TTL  time.Duration   `json:"ttl_ns"`
	TTLs []time.Duration `json:"ttls_ns"`
	// Repeats is how often a fault strikes in one arm.
	Repeats int `json:"repeats"`
	// Clients ask for numbers, in all PerSecond of them.
	Clients   int `json:"clients"`
	PerSecond int `json:"per_second"`
	// Strict: targets are checks like all others. Otherwise they are reported only,
	// since few repetitions on a machine that does other things say little about speed.
	Strict bool `json:"strict"`
}

// Profiles are those there are.
var Profiles = []Profile{
	// The shortest lease that etcd grants is 2 s.
	{Name: "quick", TTL: 2 * time.Second, TTLs: []time.Duration{2 * time.Second, 3 * time.Second}, Repeats: 1, Clients: 8, PerSecond: 400},
	{Name: "full", TTL: 3 * time.Second, TTLs: []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second}, Repeats: 5, Clients: 32, PerSecond: 5000, Strict: true},
}

// ProfileNamed finds one.
func ProfileNamed(name string) (Profile, error) {
	for _, p := range Profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("profile %q is not known: want quick or full", name)
}

// choose are the experiments by numbers or names, all if there are none.
func choose(all []Experiment, only []string) ([]Experiment, error) {
	if len(only) == 0 {
		return all, nil
	}
	var chosen []Experiment
	for _, want := range only {
		i := slices.IndexFunc(all, func(e Experiment) bool { return want == e.Name || want == fmt.Sprint(e.Number) })
		if i < 0 {
			return nil, fmt.Errorf("experiment %q is not known: want one of %s", want, strings.Join(names(all), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func names(all []Experiment) []string {
	var names []string
	for _, e := range all {
		names = append(names, fmt.Sprintf("%d (%s)", e.Number, e.Name))
	}
	return names
}
