package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
	"baton/internal/fleet/chaos"
	"baton/internal/fleet/proxy"
)

// skews are what the clocks of the nodes are off by, in an order that the seed decides.
var skews = []time.Duration{-200 * time.Millisecond, 0, 200 * time.Millisecond}

// Stage is a fleet that runs, and what scripts do to it.
type Stage struct {
	arm      Arm
	rand     *rand.Rand
	dir      string
	programs programs
	say      func(format string, args ...any)

	http     *http.Client
	file     *fleet.File
	path     string // of file
	skew     map[string]time.Duration
	clock    wallClock
	resource *fencedclient.Client
	fenced   *process
	proxy    *process
	nodes    map[string]*process
	load     *load
	sampler  *sampler
	record   *Record
}

// openStage starts a fleet over a backend, in dir. What was started before an
// error is ended.
func openStage(ctx context.Context, s *Stage, b *backend, group string, p Profile) (err error) {
	s.http = &http.Client{Transport: &http.Transport{}}
	s.nodes, s.skew, s.path = map[string]*process{}, map[string]time.Duration{}, filepath.Join(s.dir, "fleet.json")
	s.record = &Record{Arm: s.arm}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.writeFleet(b, group); err != nil {
		return err
	}
	fencing := "on"
	if s.arm.FencingOff {
		fencing = "off"
	}
	s.clock, s.record.Began = readWallClock(), fleet.Now()
	address := strings.TrimPrefix(s.file.Resource, "http://")
	s.fenced, _, err = startProcess(ctx, s.dir, "fenced", s.programs.path("fenced"),
		"-listen", address, "-db", filepath.Join(s.dir, "fenced.db"), "-fencing", fencing, "-log-json")
	if err != nil {
		return err
	}
	if s.resource, err = fencedclient.New(s.file.Resource, s.http); err != nil {
		return err
	}
	if s.proxy, _, err = startProcess(ctx, s.dir, "proxy", s.programs.path("chaos"), "proxy", "--fleet", s.path); err != nil {
		return err
	}
	var addresses []string
	for _, n := range s.file.Nodes {
		if err := s.startNode(ctx, n.ID); err != nil {
			return err
		}
		addresses = append(addresses, n.HTTP)
	}
	s.sampler = startSampler(s.file.Nodes)
	s.load = startLoad(addresses, p.Clients, p.PerSecond)
	return nil
}

func (s *Stage) writeFleet(b *backend, group string) error {
	hosts, err := fleet.StoreHosts(b.store)
	if err != nil {
		return err
	}
	ports, err := freePorts(2 + len(skews)*(1+len(hosts)))
	if err != nil {
		return err
	}
	take := func(n int) []string {
		taken := ports[:n]
		ports = ports[n:]
		return taken
	}
	s.file = &fleet.File{Group: group, Backend: b.name, Store: b.store, Resource: "http://" + take(1)[0], Proxy: take(1)[0]}
	for i, j := range s.rand.Perm(len(skews)) {
		id := fmt.Sprintf("n%d", i+1)
		s.skew[id] = skews[j]
		s.file.Nodes = append(s.file.Nodes, fleet.Node{
			ID: id, HTTP: take(1)[0], PIDFile: id + ".pid", Via: take(len(hosts)), Events: id + ".events.jsonl",
		})
	}
	return s.file.Save(s.path)
}

func (s *Stage) startNode(ctx context.Context, id string) error {
	args := []string{
		"-fleet", s.path, "-node-id", id,
		"-lease-ttl", s.arm.TTL.String(), "-clock-skew", s.skew[id].String(), "-tick", "200ms",
	}
	if s.arm.WriteDelay > 0 {
		args = append(args, "-write-delay", s.arm.WriteDelay.String())
	}
	if s.arm.Linger > 0 {
		args = append(args, "-unsafe-linger", s.arm.Linger.String())
	}
	if s.arm.Broken != "" {
		args = append(args, "-unsafe-trust", s.arm.Broken)
	}
	p, _, err := startProcess(ctx, s.dir, id, s.programs.path("node"), args...)
	if err == nil {
		s.nodes[id] = p
	}
	return err
}

// Rand is what the seed decides.
func (s *Stage) Rand() *rand.Rand { return s.rand }

// Say shows what is going on.
func (s *Stage) Say(format string, args ...any) { s.say(format, args...) }

// Steady waits until a leader writes and all nodes answer, and then for a
// moment that the seed decides, so that faults strike anywhere between two renewals.
func (s *Stage) Steady(ctx context.Context) error {
	waiting, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no leader whose writes are accepted within %v", patience))
	defer cancel()
	var last fencedRecord
	for {
		all := s.file.Statuses(waiting, s.http)
		now := s.seen(waiting)
		claims := fleet.Claims(all)
		if len(all) == len(s.file.Nodes) && len(claims) == 1 && claims[0].FenceToken == now.term && now.term == last.term && now.seq > last.seq {
			break
		}
		last = now
		pause(waiting, 25*time.Millisecond)
		if waiting.Err() != nil {
			return context.Cause(waiting)
		}
	}
	pause(ctx, 300*time.Millisecond+time.Duration(s.rand.Int64N(int64(s.arm.TTL/3))))
	return ctx.Err()
}

type fencedRecord struct {
	term baton.Term
	seq  int64
}

// seen is what the resource has seen; nothing if it does not answer.
func (s *Stage) seen(ctx context.Context) fencedRecord {
	r, err := s.resource.Read(ctx, resources[1])
	if err != nil {
		return fencedRecord{}
	}
	return fencedRecord{r.Term, r.LastSeq}
}

// Kill kills the leader, as kill -9 does, and waits until another leads.
func (s *Stage) Kill(ctx context.Context) (Fault, error) { return s.harm(ctx, kindKill) }

// Cut cuts the leader off from the backend, both ways, heals that after d, and
// waits until the fleet has settled.
func (s *Stage) Cut(ctx context.Context, d time.Duration) (Fault, error) {
	return s.harm(ctx, kindCut, fmt.Sprintf("--secs=%g", d.Seconds()))
}

// Freeze stops the leader's whole process, lets it go on after d, and waits
// until the fleet has settled.
func (s *Stage) Freeze(ctx context.Context, d time.Duration) (Fault, error) {
	f, err := s.harm(ctx, kindFreeze, fmt.Sprintf("--ms=%d", d.Milliseconds()))
	if err == nil {
		// When it was seen to go on it may have acted already; not before this.
		f.Ended = f.Began + int64(d)
		s.record.Faults[len(s.record.Faults)-1] = f
	}
	return f, err
}

// The kinds of faults, by the commands of chaos.
const (
	kindKill   = "kill-leader"
	kindCut    = "partition-leader"
	kindFreeze = "gc-pause-leader"
)

// harm has the program chaos do something to the leader, and waits until the
// fleet has settled.
func (s *Stage) harm(ctx context.Context, command string, args ...string) (Fault, error) {
	line := slices.Concat([]string{command}, args)
	s.say("chaos %s", strings.Join(line, " "))
	var (
		report chaos.Report
		f      = Fault{Command: "chaos " + strings.Join(line, " ") + " --fleet fleet.json", Kind: command}
	)
	for began := time.Now(); ; {
		var out, complaint bytes.Buffer
		status := chaos.Main(ctx, append(line, "--fleet", s.path, "-o", "json", "--wait", patience.String()), &out, &complaint)
		if status == 3 && time.Since(began) < patience && ctx.Err() == nil {
			pause(ctx, 50*time.Millisecond) // nobody led, so nothing was done
			continue
		}
		if status != 0 {
			return f, fmt.Errorf("%s: %s", f.Command, strings.TrimSpace(complaint.String()))
		}
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			return f, fmt.Errorf("read what %s reports: %w", f.Command, err)
		}
		break
	}
	f.Node, f.Term, f.Began = report.Target.NodeID, report.Target.FenceToken, report.BeganAtNS
	if report.HealedAfterMS != nil {
		f.Ended = f.Began + int64(*report.HealedAfterMS*1e6)
	}
	f.LeaseEnd = s.sampler.leaseEnd(f.Term, s.arm.TTL/10)
	s.record.Faults = append(s.record.Faults, f)
	return f, nil
}

// PastWriteSeen reports whether a write of a past leadership has reached the
// resource: refused, or accepted where fencing is off.
func (s *Stage) PastWriteSeen() bool {
	text, err := os.ReadFile(s.fenced.log)
	return err == nil && (bytes.Contains(text, []byte(`"reason":"stale"`)) || bytes.Contains(text, []byte("split brain")))
}

// Slow makes everything that the backend says to the leader arrive later, until
// another fault takes its place.
func (s *Stage) Slow(ctx context.Context, by time.Duration) error {
	claims := fleet.Claims(s.file.Statuses(ctx, s.http))
	if len(claims) == 0 {
		return errors.New("slow the leader down: nobody leads")
	}
	s.say("answers of the backend reach %s %v later", claims[0].NodeID, by)
	c := &proxy.Client{Address: s.file.Proxy, HTTP: s.http}
	f := proxy.Trouble{DelayMS: by.Milliseconds()}.In(proxy.FromBackend)
	f.ForMS = patience.Milliseconds()
	return c.Set(ctx, claims[0].NodeID, f)
}

// Wait lets the fleet go on for a while.
func (s *Stage) Wait(ctx context.Context, d time.Duration) error {
	pause(ctx, d)
	return ctx.Err()
}

// Restart starts a node again that was killed.
func (s *Stage) Restart(ctx context.Context, id string) error {
	p := s.nodes[id]
	select {
	case <-p.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.record.Exits = append(s.record.Exits, Exit{Node: id, At: p.at, Killed: true})
	return s.startNode(ctx, id)
}

// finish ends the fleet and returns its record.
func (s *Stage) finish(ctx context.Context) (*Record, error) {
	r := s.record
	r.Answers = s.load.stop()
	r.Asked = s.load.asked.Load()
	r.Samples = s.sampler.stop()
	r.Ended = fleet.Now()
	s.load, s.sampler = nil, nil
	for id, p := range s.nodes {
		if !p.running() {
			r.Exits = append(r.Exits, Exit{Node: id, At: p.at})
		}
	}
	if err := s.stopNodes(ctx); err != nil {
		return nil, err
	}
	if err := s.clock.check(); err != nil {
		return nil, err
	}
	if err := r.readWrites(ctx, s.resource, s.clock); err != nil {
		return nil, err
	}
	if err := r.readRefused(s.fenced.log, s.clock); err != nil {
		return nil, err
	}
	var logs []string
	for _, n := range s.file.Nodes {
		logs = append(logs, s.file.Path(n.Events))
	}
	if err := r.readEvents(logs); err != nil {
		return nil, err
	}
	if len(r.Writes) == 0 {
		return nil, errNothing
	}
	return r, nil
}

// stopNodes ends the leader last, so that nobody is elected on the way out.
func (s *Stage) stopNodes(ctx context.Context) error {
	leader := ""
	if claims := fleet.Claims(s.file.Statuses(ctx, s.http)); len(claims) > 0 {
		leader = claims[0].NodeID
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs error
	)
	for id, p := range s.nodes {
		if id != leader {
			wg.Go(func() {
				err := p.stop()
				mu.Lock()
				defer mu.Unlock()
				errs = errors.Join(errs, err)
			})
		}
	}
	wg.Wait()
	if p := s.nodes[leader]; p != nil {
		if s.arm.Linger > 0 {
			_ = p.cmd.Process.Kill() // it would linger; it may also be gone
		}
		errs = errors.Join(errs, p.stop())
	}
	return errs
}

// close ends everything that still runs.
func (s *Stage) close() error {
	if s.load != nil {
		s.load.stop()
	}
	if s.sampler != nil {
		s.sampler.stop()
	}
	asking, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.stopNodes(asking)
	for _, p := range []*process{s.proxy, s.fenced} {
		if p != nil {
			err = errors.Join(err, p.stop())
		}
	}
	s.http.CloseIdleConnections()
	return err
}
