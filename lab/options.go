package lab

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"baton"
	_ "baton/store/all" // so that the schemes of their URLs are known
)

// Options are what to run and how.
type Options struct {
	Profile     Profile
	Experiments []Experiment
	Backends    []string
	Seed        uint64
	// Out is the directory for results and logs.
	Out string
	// Stores are URLs of backends that run, by their names; the others are started.
	Stores map[string]string
	// Broken is Setting.Broken.
	Broken string
	// Programs is where the fleet's programs are; they are built if it is empty.
	Programs string
	// Progress is where to show how far it is.
	Progress io.Writer
}

// brokenReceipt is the one value of Setting.Broken.
const brokenReceipt = "receipt"

// options are what the flags ask for. All errors are of usage.
func (v flagValues) options(experiments []Experiment) (Options, error) {
	o := Options{Seed: v.seed, Out: v.out, Broken: v.broken, Programs: v.bin}
	var err error
	if o.Profile, err = ProfileNamed(v.profile); err != nil {
		return o, err
	}
	if v.jobs < 0 {
		return o, fmt.Errorf("--jobs is %d: want a positive number", v.jobs)
	}
	o.Profile.Work.Jobs = cmp.Or(v.jobs, o.Profile.Work.Jobs)
	if o.Experiments, err = choose(experiments, split(v.only)); err != nil {
		return o, err
	}
	backends, err := v.backends()
	if err != nil {
		return o, err
	}
	for _, b := range backends {
		o.Backends = append(o.Backends, b.Name)
	}
	if o.Stores, err = v.storeURLs(backends); err != nil {
		return o, err
	}
	return o, v.checkBroken(backends)
}

// backends are those that the flag names, each once.
func (v flagValues) backends() ([]Backend, error) {
	var all []Backend
	for _, name := range split(v.backend) {
		b, err := BackendNamed(name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(o Backend) bool { return o.Name == name }) {
			return nil, fmt.Errorf("--backend has %s twice", name)
		}
		all = append(all, b)
	}
	if len(all) == 0 {
		return nil, errors.New("--backend names none")
	}
	return all, nil
}

// storeURLs are what the flag says, and errors show nothing of a URL that may be secret.
func (v flagValues) storeURLs(backends []Backend) (map[string]string, error) {
	stores := map[string]string{}
	for _, pair := range split(v.stores) {
		name, url, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("--stores has %q: want name=URL", pair)
		}
		b, err := BackendNamed(name)
		if err != nil {
			return nil, fmt.Errorf("--stores: %w", err)
		}
		if !slices.ContainsFunc(backends, func(o Backend) bool { return o.Name == name }) {
			return nil, fmt.Errorf("--stores has %s, which is not among --backend %s", name, v.backend)
		}
		if err := b.takes(url); err != nil {
			return nil, fmt.Errorf("--stores: %w", err)
		}
		stores[name] = url
	}
	return stores, nil
}

// takes refuses a URL that cannot be one of a server of this kind.
func (b Backend) takes(url string) error {
	if b.Peers {
		return fmt.Errorf("%s has no server: the nodes elect among themselves", b.Name)
	}
	kinds := baton.StoreKinds()
	i := slices.IndexFunc(kinds, func(k baton.StoreKind) bool { return k.Name == b.Name })
	if i < 0 {
		return fmt.Errorf("%s is no store that this program has", b.Name)
	}
	scheme, _, ok := strings.Cut(url, "://")
	switch {
	case !ok:
		return fmt.Errorf("what %s is given is no URL: want one such as %s", b.Name, kinds[i].Form)
	case !slices.Contains(kinds[i].Schemes, scheme):
		return fmt.Errorf("%s:// is not of %s: want a URL such as %s", scheme, b.Name, kinds[i].Form)
	}
	return nil
}

// checkBroken refuses what no node would do.
func (v flagValues) checkBroken(backends []Backend) error {
	switch v.broken {
	case "":
		return nil
	case brokenReceipt:
	default:
		return fmt.Errorf("--broken is %q: want %s", v.broken, brokenReceipt)
	}
	for _, b := range backends {
		if b.Peers {
			return fmt.Errorf("--broken %s is about leases that a server grants, and %s has none: name other backends with --backend", v.broken, b.Name)
		}
	}
	return nil
}
