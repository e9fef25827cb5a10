package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"baton/internal/fleet"
	"baton/internal/fleet/chaos"
	"baton/internal/fleet/proxy"
)

// The kinds of faults, by the commands of chaos.
const (
	KindKill   = "kill-leader"
	KindCut    = "partition-leader"
	KindFreeze = "gc-pause-leader"
	KindSlow   = "slow-leader"
	KindStop   = "stop-leader"
	KindResign = "resign-leader"
	// KindBusy is no command: the machine is kept busy.
	KindBusy = "busy-machine"
)

// graceful reports whether a leader that it is done to hands over by itself.
func graceful(kind string) bool { return kind == KindStop || kind == KindResign }

// Kill kills the leader, as kill -9 does, and waits until another leads.
func (s *Stage) Kill(ctx context.Context) (Fault, error) { return s.harm(ctx, KindKill) }

// Stop asks the leader's process to end, and waits until another leads.
func (s *Stage) Stop(ctx context.Context) (Fault, error) { return s.harm(ctx, KindStop) }

// Resign asks the leader to hand over, to the node to if that is not empty, and
// waits until another leads.
func (s *Stage) Resign(ctx context.Context, to string) (Fault, error) {
	if to == "" {
		return s.harm(ctx, KindResign)
	}
	return s.harm(ctx, KindResign, "--to="+to)
}

// Cut cuts the leader off from the backend, both ways, heals that after d, and
// waits until the fleet has settled.
func (s *Stage) Cut(ctx context.Context, d time.Duration) (Fault, error) {
	return s.harm(ctx, KindCut, fmt.Sprintf("--secs=%g", d.Seconds()))
}

// Freeze stops the leader's whole process, lets it go on after d, and waits
// until the fleet has settled.
func (s *Stage) Freeze(ctx context.Context, d time.Duration) (Fault, error) {
	f, err := s.harm(ctx, KindFreeze, fmt.Sprintf("--ms=%d", d.Milliseconds()))
	if err == nil {
		// When it was seen to go on it may have acted already; not before this.
		f.Ended = f.Began + int64(d)
		s.record.Faults[len(s.record.Faults)-1] = f
	}
	return f, err
}

// Delay makes what the leader and the backend say to each other arrive later by
// so much, heals that after d, and waits until the fleet has settled.
func (s *Stage) Delay(ctx context.Context, by, d time.Duration) (Fault, error) {
	return s.harm(ctx, KindSlow, fmt.Sprintf("--delay-ms=%d", by.Milliseconds()), fmt.Sprintf("--secs=%g", d.Seconds()))
}

// harm has the program chaos do something to the leader, and waits until the
// fleet has settled.
func (s *Stage) harm(ctx context.Context, command string, args ...string) (Fault, error) {
	line := slices.Concat([]string{command}, args)
	s.say("chaos %s", strings.Join(line, " "))
	var (
		report chaos.Report
		f      = Fault{Command: "chaos " + strings.Join(line, " ") + " --fleet fleet.json", Kind: command}
		limit  = s.arm.patience()
	)
	for began := time.Now(); ; {
		var out, complaint bytes.Buffer
		status := chaos.Main(ctx, append(line, "--fleet", s.path, "-o", "json", "--wait", limit.String()), &out, &complaint)
		// Nobody led, so nothing was done; or the leader has not obeyed. What is not known to be done is no fault.
		undone := status == 3 || status == 1 && command == KindResign
		if undone && time.Since(began) < limit && ctx.Err() == nil {
			pause(ctx, 50*time.Millisecond)
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
	f.Done = report.DoneAtNS
	if report.HealedAfterMS != nil {
		f.Ended = f.Began + int64(*report.HealedAfterMS*1e6)
	}
	s.record.Faults = append(s.record.Faults, f)
	return f, nil
}

// KillRestart kills the leader, starts its node again at once, and waits until
// the next one leads.
func (s *Stage) KillRestart(ctx context.Context) error {
	leader, err := s.leader(ctx, 0)
	if err != nil {
		return err
	}
	f := Fault{Command: "chaos kill-leader --fleet fleet.json", Kind: KindKill, Node: leader.NodeID, Term: leader.FenceToken, Began: fleet.Now()}
	if err := s.nodes[f.Node].cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", f.Node, err)
	}
	f.Done = fleet.Now()
	s.record.Faults = append(s.record.Faults, f)
	s.say("kill -9 of %s, number %d", f.Node, len(s.record.Faults))
	if err := s.Restart(ctx, f.Node); err != nil {
		return err
	}
	_, err = s.leader(ctx, uint64(f.Term))
	return err
}

// Leader is the node that leads and acts, once there is one.
func (s *Stage) Leader(ctx context.Context) (string, error) {
	status, err := s.leader(ctx, 0)
	return status.NodeID, err
}

// leader waits for a leader of a higher term than this that acts.
func (s *Stage) leader(ctx context.Context, above uint64) (fleet.Status, error) {
	limit := s.arm.patience()
	waiting, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no leader after term %d within %v", above, limit))
	defer cancel()
	for waiting.Err() == nil {
		asking, cancel := context.WithTimeout(waiting, time.Second)
		claims := fleet.Claims(s.file.Statuses(asking, s.http))
		cancel()
		if len(claims) > 0 && claims[0].Acting && uint64(claims[0].FenceToken) > above {
			return claims[0], nil
		}
		pause(waiting, 20*time.Millisecond)
	}
	return fleet.Status{}, context.Cause(waiting)
}

// Busy keeps all processors of the machine busy for a while.
func (s *Stage) Busy(ctx context.Context, d time.Duration) (err error) {
	leader, err := s.leader(ctx, 0)
	if err != nil {
		return err
	}
	programs := 2 * runtime.NumCPU()
	s.say("%d programs keep the machine busy for %v", programs, d)
	f := Fault{Command: fmt.Sprintf("%d endless loops", programs), Kind: KindBusy, Node: leader.NodeID, Term: leader.FenceToken, Began: fleet.Now()}
	for range programs {
		p, _, err := startProcess(ctx, s.dir, "busy", "sh", "-c", "echo busy; while :; do :; done")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
	}
	err = s.Wait(ctx, d)
	f.Ended = fleet.Now()
	s.record.Faults = append(s.record.Faults, f)
	return err
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
	leader, err := s.leader(ctx, 0)
	if err != nil {
		return fmt.Errorf("slow the leader down: %w", err)
	}
	s.say("answers of the backend reach %s %v later", leader.NodeID, by)
	c := &proxy.Client{Address: s.file.Proxy, HTTP: s.http}
	f := proxy.Trouble{DelayMS: by.Milliseconds()}.In(proxy.FromBackend)
	f.ForMS = patience.Milliseconds()
	return c.Set(ctx, leader.NodeID, f)
}

// Restart starts a node again that was killed, or has ended as it was asked to.
func (s *Stage) Restart(ctx context.Context, id string) error {
	p := s.nodes[id]
	select {
	case <-p.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.record.Exits = append(s.record.Exits, Exit{Node: id, At: p.at, Killed: !p.gaveUp()})
	next, err := s.launch(ctx, id)
	if err == nil {
		s.nodes[id] = next
	}
	return err
}
