package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"baton/internal/fleet/workset"
)

// Experiment is a question that a few runs of a fleet answer.
type Experiment struct {
	// Number is what `lab run --only` takes.
	Number   int
	Name     string
	Question string
	// Arms are what is run, each with a fleet of its own.
	Arms func(s Setting) []Arm
	// Plot draws what is particular to this experiment; the timelines of all
	// arms are drawn anyway. It may be nil.
	Plot func(r Result) ([]Figure, error)
	// Findings says in sentences what the result shows.
	Findings func(r Result) []string
	// Columns and Row are the same as a line of a table that has one for each backend.
	Columns []string
	Row     func(r Result) []string
}

// newSetting fits a backend to a profile.
func newSetting(p Profile, b Backend, broken string) Setting {
	if b.Peers {
		b.ElectionTimeout = max(b.ElectionTimeout, p.ElectionTimeout)
	}
	return Setting{Profile: p, Backend: b, Broken: broken}
}

// Setting is what an experiment is run with.
type Setting struct {
	Profile Profile
	Backend Backend
	// Broken makes the nodes elect wrongly on purpose, as the flag
	// -unsafe-trust of the node says; the checks must catch it.
	Broken string
}

// TTL is the shortest that the backend grants from this one on.
func (s Setting) TTL(want time.Duration) time.Duration { return max(want, s.Backend.Floor) }

// Lapse is how long a lease with this TTL may last after its last renewal.
func (s Setting) Lapse(ttl time.Duration) time.Duration {
	return ttl * time.Duration(max(s.Backend.Lapse, 1))
}

// RenewEvery is the time between two renewals.
func (s Setting) RenewEvery(ttl time.Duration) time.Duration {
	if s.Backend.Peers {
		return s.Backend.ElectionTimeout / 2
	}
	return ttl / 3
}

// TTLs are those of a list that the backend grants, and its shortest for what is shorter.
func (s Setting) TTLs(want []time.Duration) []time.Duration {
	var all []time.Duration
	for _, ttl := range want {
		if ttl = s.TTL(ttl); !slices.Contains(all, ttl) {
			all = append(all, ttl)
		}
	}
	return all
}

// Sound are the checks that every arm with fencing and sound nodes passes: what
// Fenced has, and what a backend promises that is more than best effort.
func (s Setting) Sound() []Check {
	checks := append(Fenced(), OnlyKilled)
	if !s.Backend.Unguarded {
		checks = append(checks, OneByBelief)
	}
	return checks
}

// Leases are the checks of leases that nobody gave back.
func (s Setting) Leases() []Check {
	if s.Backend.Unguarded {
		return nil
	}
	return []Check{NotEarly, Expired}
}

// Arm is one run of a fleet.
type Arm struct {
	Name string
	// Says what is special about it.
	Says string
	// TTL is the lease's.
	TTL time.Duration
	// Nodes is how many there are; 3 if it is 0.
	Nodes int
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
	// Work is what the leader owns beside ticks and numbers; nothing if it is nil. All of
	// it takes WorkTime.
	Work     *workset.Size
	WorkTime time.Duration
	// Load is what clients ask for; the profile's if it is zero.
	Load Load
	// Script does to the fleet what is to be done.
	Script func(ctx context.Context, s *Stage) error
	// Checks judge the record.
	Checks []Check
	// Takes is about how long it takes, for the progress shown.
	Takes time.Duration
}

func (a Arm) nodes() int {
	if a.Nodes == 0 {
		return 3
	}
	return a.Nodes
}

// patience is far beyond what anything takes that the arm waits for.
func (a Arm) patience() time.Duration { return patience + 3*a.TTL }

// Load is what clients ask for.
type Load struct {
	Clients int `json:"clients"`
	// PerSecond is of all together; 0: each asks again as soon as it was answered.
	PerSecond int `json:"per_second"`
}

// Profile is how much is done.
type Profile struct {
	Name string `json:"name"`
	// TTL is that of all arms that do not vary it, TTLs those of the ones that do.
	TTL  time.Duration   `json:"ttl_ns"`
	TTLs []time.Duration `json:"ttls_ns"`
	// ElectionTimeout is the least that peers are given; their own if it is 0.
	ElectionTimeout time.Duration `json:"election_timeout_ns,omitempty"`
	// Repeats is how often a fault strikes in one arm.
	Repeats int `json:"repeats"`
	// Load is what clients ask for while faults strike.
	Load Load `json:"load"`
	// Sweep are the TTLs of the sweep, Stumbles what its leaders stumble over.
	Sweep    []time.Duration `json:"sweep_ns"`
	Stumbles []Stumble       `json:"stumbles"`
	// Churn kills and restarts leaders.
	Churn Churn `json:"churn"`
	// Work is what leaders hand on, within WorkTime.
	Work     workset.Size  `json:"work"`
	WorkTime time.Duration `json:"work_time_ns"`
	// Sequence is how many numbers a second are asked for, for how long.
	Sequence    Load          `json:"sequence"`
	SequenceFor time.Duration `json:"sequence_for_ns"`
	// Strict: targets are checks like all others. Otherwise they are reported only,
	// since few repetitions on a machine that does other things say little about speed.
	Strict bool `json:"strict"`
	// Parallel is how many fleets of three nodes run at once. More than one
	// saves time and spoils figures of speed.
	Parallel int `json:"parallel"`
}

// Churn is a storm of elections.
type Churn struct {
	Nodes int           `json:"nodes"`
	Kills int           `json:"kills"`
	Every time.Duration `json:"every_ns"`
}

// Stumble is something that disturbs a leader and should not unseat it.
type Stumble struct {
	// Kind is one of those below.
	Kind string `json:"kind"`
	// For is how long it lasts, By how late a slow backend's answers are.
	For time.Duration `json:"for_ns"`
	By  time.Duration `json:"by_ns,omitempty"`
}

// The kinds of stumbles.
const (
	// StumblePause stops the leader's whole process.
	StumblePause = "pause"
	// StumbleSlow makes what the leader and its backend say arrive late.
	StumbleSlow = "slow backend"
	// StumbleBusy keeps the machine's processors busy, two programs for each.
	StumbleBusy = "busy machine"
)

func pauses(ms ...int) []Stumble {
	var all []Stumble
	for _, n := range ms {
		all = append(all, Stumble{Kind: StumblePause, For: time.Duration(n) * time.Millisecond})
	}
	return all
}

// Profiles are those there are.
var Profiles = []Profile{
	{
		Name: "quick",
		// The shortest lease that etcd grants is 2 s.
		TTL: 2 * time.Second, TTLs: []time.Duration{2 * time.Second, 4 * time.Second}, Repeats: 1, Load: Load{8, 200},
		// Several fleets share the machine, perhaps with others, so that 200 ms of silence mean nothing.
		ElectionTimeout: 600 * time.Millisecond,
		Sweep:           []time.Duration{2 * time.Second, 4 * time.Second},
		Stumbles: append(pauses(300, 1700),
			Stumble{Kind: StumbleSlow, For: 2 * time.Second, By: 50 * time.Millisecond}),
		Churn: Churn{Nodes: 9, Kills: 3, Every: time.Second},
		Work:  workset.Size{Jobs: 200_000, Segments: 4, SegmentBytes: 1 << 30}, WorkTime: 8 * time.Second,
		Sequence: Load{16, 1000}, SequenceFor: 3 * time.Second,
		Parallel: 6,
	},
	{
		// The loads of full, with fewer repetitions.
		Name: "short",
		TTL:  3 * time.Second, TTLs: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}, Repeats: 2, Load: Load{32, 5000},
		Sweep: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second},
		Stumbles: append(pauses(200, 400, 600, 800, 1000, 1500, 2000, 2500),
			Stumble{Kind: StumbleSlow, For: 3 * time.Second, By: 50 * time.Millisecond},
			Stumble{Kind: StumbleSlow, For: 3 * time.Second, By: 200 * time.Millisecond}),
		Churn: Churn{Nodes: 9, Kills: 40, Every: 5 * time.Second},
		Work:  workset.Size{Jobs: 10_000_000, Segments: 100, SegmentBytes: 1 << 30}, WorkTime: 30 * time.Second,
		Sequence: Load{128, 5500}, SequenceFor: 30 * time.Second,
		Strict: true, Parallel: 1,
	},
	{
		Name: "full",
		TTL:  3 * time.Second, TTLs: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second}, Repeats: 5, Load: Load{32, 5000},
		Sweep: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second},
		Stumbles: append(pauses(100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1250, 1500, 1750, 2000, 2500, 3000),
			Stumble{Kind: StumbleSlow, For: 5 * time.Second, By: 50 * time.Millisecond},
			Stumble{Kind: StumbleSlow, For: 5 * time.Second, By: 150 * time.Millisecond},
			Stumble{Kind: StumbleSlow, For: 5 * time.Second, By: 300 * time.Millisecond},
			Stumble{Kind: StumbleBusy, For: 15 * time.Second}),
		Churn: Churn{Nodes: 9, Kills: 120, Every: 5 * time.Second},
		Work:  workset.Size{Jobs: 10_000_000, Segments: 100, SegmentBytes: 1 << 30}, WorkTime: time.Minute,
		Sequence: Load{128, 5500}, SequenceFor: time.Minute,
		Strict: true, Parallel: 1,
	},
}

// ProfileNamed finds one.
func ProfileNamed(name string) (Profile, error) {
	for _, p := range Profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("profile %q is not known: want quick, short or full", name)
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
		if slices.ContainsFunc(chosen, func(e Experiment) bool { return e.Number == all[i].Number }) {
			return nil, fmt.Errorf("experiment %d (%s) is named twice", all[i].Number, all[i].Name)
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
