package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"baton/fenced/fencedclient"
)

// Result is one experiment on one backend.
type Result struct {
	Number   int    `json:"number"`
	Name     string `json:"name"`
	Question string `json:"question"`
	Backend  string `json:"backend"`
	// BackendVersion is what the backend says it is.
	BackendVersion string  `json:"backend_version"`
	OK             bool    `json:"ok"`
	Profile        Profile `json:"profile"`
	Seed           uint64  `json:"seed"`
	Broken         string  `json:"broken,omitempty"`
	// Command does it again.
	Command string  `json:"command"`
	Machine Machine `json:"machine"`
	// Run is when the run began that it is of: what tells it from one before.
	Run      time.Time   `json:"run,omitzero"`
	Began    time.Time   `json:"began"`
	TookMS   int64       `json:"took_ms"`
	Arms     []ArmResult `json:"arms"`
	Findings []string    `json:"findings"`
}

// ArmResult is one arm of an experiment. Times are nanoseconds on the machine's
// CLOCK_BOOTTIME.
type ArmResult struct {
	Name         string `json:"name"`
	Says         string `json:"says"`
	OK           bool   `json:"ok"`
	TTLMS        int64  `json:"ttl_ms"`
	Fencing      bool   `json:"fencing"`
	Nodes        int    `json:"nodes"`
	WriteDelayMS int64  `json:"write_delay_ms,omitempty"`
	LingerMS     int64  `json:"linger_ms,omitempty"`
	// SkewMS is what each node's clocks were off by.
	SkewMS    map[string]int64   `json:"skew_ms"`
	Began     int64              `json:"began_ns"`
	Ended     int64              `json:"ended_ns"`
	Faults    []Fault            `json:"faults"`
	Failovers []Failover         `json:"failovers"`
	Belief    []Interval         `json:"belief"`
	Effect    []Interval         `json:"effect"`
	Overlaps  []Overlap          `json:"belief_overlaps"`
	Refused   int                `json:"refused"`
	Refusals  []Refusal          `json:"refusals"` // the first of them
	Audit     fencedclient.Audit `json:"audit"`
	// Fell are the accepted writes of the past: none, with fencing.
	Fell      []Write        `json:"fell"`
	Load      LoadTally      `json:"load"`
	Rates     RateTally      `json:"rates"`
	Elections []Election     `json:"elections"`
	Handovers []Handover     `json:"handovers,omitempty"`
	Led       map[string]int `json:"led"`
	// Drought is for how many elections in a row a node did not win.
	Drought map[string]int `json:"drought"`
	Traffic TrafficTally   `json:"traffic"`
	// Host is what the machine was short of, where that is known.
	Host     *HostTally  `json:"host,omitempty"`
	Work     *WorkRecord `json:"work,omitempty"`
	Verdicts []Verdict   `json:"checks"`
}

// LoadTally is what the clients saw.
type LoadTally struct {
	Load
	Asked    int64 `json:"asked"`
	Answered int   `json:"answered"`
	Twice    int   `json:"twice"`
	Fell     int   `json:"fell"`
}

// Machine is where it ran.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	CPU    string `json:"cpu"`
	Go     string `json:"go"`
	// Commit is that of the sources; "+changes" if they differ from it.
	Commit string `json:"commit"`
	Baton  string `json:"baton"`
}

const mostListed = 50

func newArmResult(r *Record, skew map[string]time.Duration, strict bool) ArmResult {
	r.unseat()
	a := ArmResult{
		Name: r.Arm.Name, Says: r.Arm.Says, TTLMS: r.Arm.TTL.Milliseconds(), Fencing: !r.Arm.FencingOff,
		WriteDelayMS: r.Arm.WriteDelay.Milliseconds(), LingerMS: r.Arm.Linger.Milliseconds(), SkewMS: map[string]int64{},
		Began: r.Began, Ended: r.Ended, Faults: r.Faults, Failovers: r.Failovers(),
		Belief: r.Belief(), Effect: r.Effect(), Refused: len(r.Stale()), Audit: r.Audit, Verdicts: r.judge(),
		Load: LoadTally{Load: r.Arm.Load, Asked: r.Asked, Answered: len(r.Answers)}, Nodes: r.Arm.nodes(),
		Elections: r.Elections(), Handovers: r.Handovers(), Traffic: tallyTraffic(r.Traffic), Host: tallyHost(r.Host), Work: r.Work, Rates: r.Rates(),
	}
	a.Led, a.Drought = r.Turns()
	for id, by := range skew {
		a.SkewMS[id] = by.Milliseconds()
	}
	a.Overlaps = overlaps(a.Belief)
	a.Refusals = r.Stale()
	a.Refusals = a.Refusals[:min(len(a.Refusals), mostListed)]
	a.Load.Twice, a.Load.Fell = r.misgiven()
	highest := r.Writes[0].Term
	for _, w := range r.Writes {
		if w.Term < highest && len(a.Fell) < mostListed {
			a.Fell = append(a.Fell, w)
		}
		highest = max(highest, w.Term)
	}
	a.OK = !slices.ContainsFunc(a.Verdicts, func(v Verdict) bool { return !v.OK && (v.Kind != Target || strict) })
	return a
}

// Failed are the checks that make a result not OK.
func (r Result) Failed() []string {
	var failed []string
	for _, a := range r.Arms {
		for _, v := range a.Verdicts {
			if !v.OK && (v.Kind != Target || r.Profile.Strict) {
				failed = append(failed, fmt.Sprintf("experiment %d (%s) on %s, %s: %s: %s", r.Number, r.Name, r.Backend, a.Name, v.Name, v.Saw))
			}
		}
	}
	return failed
}

// Arm finds an arm by its name.
func (r Result) Arm(name string) (ArmResult, bool) {
	i := slices.IndexFunc(r.Arms, func(a ArmResult) bool { return a.Name == name })
	if i < 0 {
		return ArmResult{}, false
	}
	return r.Arms[i], true
}

func (r Result) file() string { return fmt.Sprintf("%d-%s-%s.json", r.Number, r.Name, r.Backend) }

func (r Result) save(dir string) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = replaceFile(filepath.Join(dir, r.file()), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save a result: %w", err)
	}
	return nil
}

// replaceFile leaves what is there until all of the new is written.
func replaceFile(path string, text []byte) error {
	unready := path + ".new"
	if err := os.WriteFile(unready, text, 0o644); err != nil {
		return err
	}
	return os.Rename(unready, path)
}

// errNoResults says that there are none.
var errNoResults = errors.New("no results")

// ReadResults reads all results in a directory.
func ReadResults(dir string) ([]Result, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "[0-9]-*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w in %s: `lab run --out %s` makes some", errNoResults, dir, dir)
	}
	var all []Result
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// thisMachine asks the system; what it does not tell stays empty.
func thisMachine(checkout string) Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if b, ok := debug.ReadBuildInfo(); ok {
		m.Baton = b.Main.Version
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range bytes.Lines(text) {
			if name, value, ok := bytes.Cut(line, []byte(":")); ok && strings.TrimSpace(string(name)) == "model name" {
				m.CPU = strings.TrimSpace(string(value))
				break
			}
		}
	}
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", checkout}, args...)...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	m.Commit = git("rev-parse", "--short", "HEAD")
	if m.Commit != "" && git("status", "--porcelain") != "" {
		m.Commit += "+changes"
	}
	return m
}

// Span is a list of numbers as its least and its most, for people.
func Span(all []float64) string {
	least, most := slices.Min(all), slices.Max(all)
	if len(all) == 1 {
		return fmt.Sprintf("%.0f", least)
	}
	return fmt.Sprintf("%.0f to %.0f", least, most)
}

// Together is for how long two nodes acted at once, by belief.
func Together(a ArmResult) time.Duration { return total(a.Overlaps).Round(time.Millisecond / 10) }

// StopGaps are the times, in milliseconds, from when the leader that a fault
// struck stopped acting to when the next one began, by belief.
func StopGaps(a ArmResult) []float64 {
	var gaps []float64
	for _, f := range a.Faults {
		for i, acted := range a.Belief {
			if acted.Term == f.Term && i+1 < len(a.Belief) {
				gaps = append(gaps, millis(a.Belief[i+1].From-acted.To))
			}
		}
	}
	return gaps
}
