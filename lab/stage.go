package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
	"baton/internal/fleet/workset"
)

// skews are what the clocks of the nodes are off by, over and over, in an order
// that the seed decides.
var skews = []time.Duration{-200 * time.Millisecond, 0, 200 * time.Millisecond}

// Stage is a fleet that runs, and what scripts do to it.
type Stage struct {
	arm      Arm
	backend  Backend
	rand     *rand.Rand
	dir      string // for what is kept
	scratch  string // for what is not
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
	traffic  *trafficMeter
	host     *hostMeter
	record   *Record
}

// openStage starts a fleet over a backend, in dir. What was started before an
// error is ended.
func openStage(ctx context.Context, s *Stage, b *server, group string) (err error) {
	s.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	s.nodes, s.skew, s.path = map[string]*process{}, map[string]time.Duration{}, filepath.Join(s.dir, "fleet.json")
	s.record = &Record{Arm: s.arm, Skew: s.skew}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.writeFleet(b, group); err != nil {
		return err
	}
	if err := os.MkdirAll(s.scratch, 0o755); err != nil {
		return err
	}
	if s.arm.Work != nil {
		if err := workset.Create(s.scratch, *s.arm.Work); err != nil {
			return err
		}
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
	if err := s.startNodes(ctx); err != nil {
		return err
	}
	s.traffic = startTrafficMeter(s.file.Proxy)
	s.host = startHostMeter()
	s.load = startLoad(s.file.Nodes, s.arm.Load)
	return nil
}

// writeFleet gives every node its addresses and its skew.
func (s *Stage) writeFleet(b *server, group string) error {
	store, nodes := b.store, s.arm.nodes()
	if s.backend.Peers {
		own, err := freePorts(nodes)
		if err != nil {
			return err
		}
		store = s.backend.Name + "://" + strings.Join(own, ",")
	}
	hosts, err := fleet.StoreHosts(store)
	if err != nil {
		return err
	}
	ports, err := freePorts(2 + nodes*(1+len(hosts)))
	if err != nil {
		return err
	}
	take := func(n int) []string {
		taken := ports[:n]
		ports = ports[n:]
		return taken
	}
	s.file = &fleet.File{Group: group, Backend: s.backend.Name, Store: store, Resource: "http://" + take(1)[0], Proxy: take(1)[0]}
	order := s.rand.Perm(nodes)
	for i := range nodes {
		id := fmt.Sprintf("n%d", i+1)
		s.skew[id] = skews[order[i]%len(skews)]
		s.file.Nodes = append(s.file.Nodes, fleet.Node{
			ID: id, HTTP: take(1)[0], PIDFile: id + ".pid", Via: take(len(hosts)), Events: id + ".events.jsonl",
		})
	}
	return s.file.Save(s.path)
}

// startNodes starts all at once: peers need each other to begin.
func (s *Stage) startNodes(ctx context.Context) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  error
		nodes = map[string]*process{}
	)
	for _, n := range s.file.Nodes {
		wg.Go(func() {
			p, err := s.launch(ctx, n.ID)
			mu.Lock()
			defer mu.Unlock()
			errs = errors.Join(errs, err)
			if p != nil {
				nodes[n.ID] = p
			}
		})
	}
	wg.Wait()
	s.nodes = nodes
	return errs
}

// launch starts one node.
func (s *Stage) launch(ctx context.Context, id string) (*process, error) {
	args := []string{"-fleet", s.path, "-node-id", id, "-clock-skew", s.skew[id].String(), "-tick", "200ms"}
	if s.backend.Peers {
		args = append(args, "-data", filepath.Join(s.scratch, id), "-election-timeout", s.backend.ElectionTimeout.String())
	} else {
		args = append(args, "-lease-ttl", s.arm.TTL.String())
	}
	for _, o := range []struct {
		flag  string
		value time.Duration
	}{{"-write-delay", s.arm.WriteDelay}, {"-unsafe-linger", s.arm.Linger}} {
		if o.value > 0 {
			args = append(args, o.flag, o.value.String())
		}
	}
	if s.arm.Broken != "" {
		args = append(args, "-unsafe-trust", s.arm.Broken)
	}
	if s.arm.Work != nil {
		args = append(args, "-work-dir", s.scratch, "-work-time", s.arm.WorkTime.String())
	}
	p, _, err := startProcess(ctx, s.dir, id, s.programs.path("node"), args...)
	return p, err
}

// Rand is what the seed decides.
func (s *Stage) Rand() *rand.Rand { return s.rand }

// Say shows what is going on.
func (s *Stage) Say(format string, args ...any) { s.say(format, args...) }

// Steady waits until a leader writes and all nodes answer, and then for a
// moment that the seed decides, so that faults strike anywhere between two renewals.
// A node that has given up is started again, as a supervisor would; it is on record.
func (s *Stage) Steady(ctx context.Context) error {
	limit := s.arm.patience()
	waiting, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no leader whose writes are accepted within %v", limit))
	defer cancel()
	var last fencedRecord
	for {
		if err := s.revive(ctx); err != nil {
			return err
		}
		all := s.file.Statuses(waiting, s.http)
		now := s.seen(waiting)
		claims := fleet.Claims(all)
		if len(all) == len(s.file.Nodes) && len(claims) == 1 && now.term == last.term && now.seq > last.seq &&
			(claims[0].FenceToken == now.term || s.arm.FencingOff) { // which does not ask whose write it is
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

// revive starts nodes again that have given up.
func (s *Stage) revive(ctx context.Context) error {
	for id, p := range s.nodes {
		if !p.gaveUp() {
			continue
		}
		s.say("%s has given up, and is started again; see %s", id, p.log)
		s.record.Exits = append(s.record.Exits, Exit{Node: id, At: p.at})
		next, err := s.launch(ctx, id)
		if err != nil {
			return err
		}
		s.nodes[id] = next
	}
	return nil
}

type fencedRecord struct {
	term baton.Term
	seq  int64
}

// seen is what the resource has seen; nothing if it does not answer.
func (s *Stage) seen(ctx context.Context) fencedRecord {
	r, err := s.resource.Read(ctx, ticksResource)
	if err != nil {
		return fencedRecord{}
	}
	return fencedRecord{r.Term, r.LastSeq}
}

// Wait lets the fleet go on for a while.
func (s *Stage) Wait(ctx context.Context, d time.Duration) error {
	pause(ctx, d)
	return ctx.Err()
}

// finish ends the fleet and returns its record.
func (s *Stage) finish(ctx context.Context) (*Record, error) {
	r := s.record
	r.Answers = s.load.stop()
	r.Asked = s.load.asked.Load()
	r.Traffic = s.traffic.stop()
	r.Host = s.host.stop()
	r.Ended = fleet.Now()
	s.load, s.traffic, s.host = nil, nil, nil
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
	r.Clock = s.clock
	var logs []string
	for _, n := range s.file.Nodes {
		logs = append(logs, s.file.Path(n.Events))
	}
	if err := r.readEvents(logs); err != nil {
		return nil, err
	}
	if err := s.readWork(ctx); err != nil {
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
	if s.file != nil {
		if claims := fleet.Claims(s.file.Statuses(ctx, s.http)); len(claims) > 0 {
			leader = claims[0].NodeID
		}
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
	if s.traffic != nil {
		s.traffic.stop()
	}
	if s.host != nil {
		s.host.stop()
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
	return errors.Join(err, os.RemoveAll(s.scratch))
}

// Nodes are the ids of all nodes.
func (s *Stage) Nodes() []string {
	var ids []string
	for _, n := range s.file.Nodes {
		ids = append(ids, n.ID)
	}
	return ids
}
