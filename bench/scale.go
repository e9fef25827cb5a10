package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"baton"
	"baton/store/raftstore"
	"baton/store/remotestore"
)

// scale is what one server does with this many live leases.
type scale struct {
	Leases int `json:"leases"`
	// Live is how many the server itself counted at the end.
	Live int `json:"live"`
	// FillRate is at which they were acquired, through HTTP.
	FillRate float64 `json:"fill_per_second"`
	// Renewals of leases drawn at random, with all of them live.
	Renewals float64 `json:"renewals_per_second"`
	RenewP99 float64 `json:"renew_p99_ms"`
	// EmptyRSS is the server's resident memory before the first lease, RSS
	// with all of them, SettledRSS with all of them after a restart.
	EmptyRSS   int64 `json:"empty_rss"`
	RSS        int64 `json:"rss"`
	SettledRSS int64 `json:"settled_rss"`
	// Each restart is from kill -9 until a lease of before is renewed.
	FromLog      time.Duration `json:"restart_from_log_ns"`
	LogBytes     int64         `json:"log_bytes"`
	FromSnapshot time.Duration `json:"restart_from_snapshot_ns"`
	// Snapshot is the time to write one; Stall the longest renewal meanwhile,
	// which includes the time that the state was locked.
	Snapshot      time.Duration `json:"snapshot_ns"`
	SnapshotBytes int64         `json:"snapshot_bytes"`
	Stall         time.Duration `json:"stall_ns"`
	// Limit says what kept the run from going on; "" if nothing did.
	Limit string `json:"limit,omitempty"`
}

// fillWithin is less than the leases last: the first has to live when the last is granted.
const fillWithin = holdTTL - 90*time.Second

// scaled is one run of it.
type scaled struct {
	*stage
	data    string
	peer    string
	process *process
	url     string
	client  *remotestore.Store
	ids     []baton.LeaseID
	out     scale
}

func (b *bench) scaleTo(ctx context.Context, n int) (err error) {
	port, err := freePort()
	if err != nil {
		return err
	}
	s := &scaled{
		stage: b.stage, data: filepath.Join(b.stage.dir, fmt.Sprintf("scale-%d", n)),
		peer: fmt.Sprintf("127.0.0.1:%d", port), out: scale{Leases: n},
	}
	defer func() {
		err = errors.Join(err, s.end(), os.RemoveAll(s.data))
	}()
	progress("%d leases on one server: acquiring them", n)
	if err := s.start(ctx, 1<<40); err != nil { // no snapshot in this life
		return err
	}
	s.out.EmptyRSS = residentMemory(s.process.pid())
	if err := s.fill(ctx, n, b.clients); err != nil {
		return err
	}
	s.out.RSS = residentMemory(s.process.pid())
	progress("%d leases: %.0f acquired in a second, %d MB resident; renewing them", len(s.ids), s.out.FillRate, s.out.RSS>>20)
	if err := s.renewAny(ctx, b.clients, 2*b.slice); err != nil {
		return err
	}
	s.out.LogBytes = sizeOf(s.data)
	progress("%d leases: restart from a log of %d MB", n, s.out.LogBytes>>20)
	// From now on, the log is compacted whenever raft looks at it, each 30 s to 60 s.
	if s.out.FromLog, err = s.restart(ctx, 1); err != nil {
		return err
	}
	progress("%d leases: restarted in %v; waiting for a snapshot, up to a minute", n, s.out.FromLog.Round(time.Millisecond))
	if err := s.awaitSnapshot(ctx); err != nil {
		return err
	}
	progress("%d leases: written in %v; restart from it", n, s.out.Snapshot.Round(time.Millisecond))
	if s.out.FromSnapshot, err = s.restart(ctx, 1<<40); err != nil {
		return err
	}
	s.out.SettledRSS = residentMemory(s.process.pid())
	stats, err := s.stats(ctx)
	if err != nil {
		return err
	}
	s.out.Live = stats.Leases
	progress("%d leases: restarted in %v, %d live", n, s.out.FromSnapshot.Round(time.Millisecond), s.out.Live)
	b.report.Scale = append(b.report.Scale, s.out)
	return nil
}

func (s *scaled) start(ctx context.Context, snapshotEntries uint64) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s.started++
	s.process, err = startProcess(filepath.Join(s.dir, fmt.Sprintf("scale-%d.log", s.started)), self, scaleServer,
		"-data", s.data, "-peer", s.peer, "-snapshot-entries", fmt.Sprint(snapshotEntries))
	if err != nil {
		return err
	}
	var said struct {
		URL string `json:"url"`
	}
	if err := s.process.hear(ctx, &said); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	s.url = said.URL
	for deadline := time.Now().Add(readyWithin); ; {
		s.client, err = remotestore.New(ctx, remotestore.Config{
			Servers: []string{s.url}, Timeout: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *scaled) end() error {
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.process != nil {
		errs = append(errs, s.process.kill())
	}
	s.client, s.process = nil, nil
	return errors.Join(errs...)
}

// restart kills the server and times how long nobody's lease can be renewed.
func (s *scaled) restart(ctx context.Context, snapshotEntries uint64) (time.Duration, error) {
	began := time.Now()
	if err := s.end(); err != nil {
		return 0, err
	}
	if err := s.start(ctx, snapshotEntries); err != nil {
		return 0, err
	}
	_, err := s.client.Renew(ctx, s.ids[0], holdTTL)
	return time.Since(began), err
}

// together runs do in all clients until it reports that it is done.
func together(clients int, do func(client int) (more bool, err error)) error {
	errs := make([]error, clients)
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			for more := true; more && errs[i] == nil; {
				more, errs[i] = do(i)
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// fill acquires n leases, or as many as there is time for.
func (s *scaled) fill(ctx context.Context, n, clients int) error {
	ids := make([]baton.LeaseID, n)
	var next atomic.Int64
	began := time.Now()
	err := together(clients, func(client int) (bool, error) {
		i := int(next.Add(1)) - 1
		if i >= n || time.Since(began) > fillWithin {
			return false, nil
		}
		if i > 0 && i%(n/10+1) == 0 {
			progress("%d of %d", i, n)
		}
		lease, err := s.client.Acquire(ctx, fmt.Sprintf("group-%07d", i), newCandidate(client), holdTTL)
		ids[i] = lease.ID()
		return true, err
	})
	if err != nil {
		return err
	}
	s.ids = slices.DeleteFunc(ids, func(id baton.LeaseID) bool { return id.Term == 0 })
	s.out.FillRate = float64(len(s.ids)) / time.Since(began).Seconds()
	if len(s.ids) < n {
		s.out.Limit = fmt.Sprintf("only %d could be acquired in %v, and the first must not end before the last is there", len(s.ids), fillWithin)
	}
	return nil
}

func (s *scaled) renewAny(ctx context.Context, clients int, d time.Duration) error {
	times := make([][]time.Duration, clients)
	began := time.Now()
	err := together(clients, func(client int) (bool, error) {
		sent := time.Now()
		if sent.Sub(began) > d {
			return false, nil
		}
		_, err := s.client.Renew(ctx, s.ids[rand.IntN(len(s.ids))], holdTTL)
		times[client] = append(times[client], time.Since(sent))
		return true, err
	})
	all := slices.Concat(times...)
	slices.Sort(all)
	s.out.Renewals, s.out.RenewP99 = float64(len(all))/time.Since(began).Seconds(), millis(quantile(all, 0.99))
	return err
}

// awaitSnapshot waits until one is written, renewing a lease all the while.
func (s *scaled) awaitSnapshot(ctx context.Context) error {
	const within = 3 * time.Minute
	for deadline := time.Now().Add(within); ; {
		sent := time.Now()
		if _, err := s.client.Renew(ctx, s.ids[0], holdTTL); err != nil {
			return err
		}
		s.out.Stall = max(s.out.Stall, time.Since(sent))
		stats, err := s.stats(ctx)
		switch {
		case err != nil:
			return err
		case stats.Snapshots.Count > 0:
			s.out.Snapshot = stats.Snapshots.Total / time.Duration(stats.Snapshots.Count)
			s.out.SnapshotBytes = sizeOf(filepath.Join(s.data, "snapshots"))
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("no snapshot within %v", within)
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *scaled) stats(ctx context.Context) (out raftstore.Stats, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/bench/stats", nil)
	if err != nil {
		return out, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return out, err
	}
	defer response.Body.Close()
	return out, json.NewDecoder(response.Body).Decode(&out)
}
