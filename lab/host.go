package lab

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// Processors is how much time a virtual machine's processors had had at a
// moment, and how much its host had given to others while they wanted to run.
type Processors struct {
	All, Taken float64
}

// hostMeter asks the kernel, again and again: elections within milliseconds say nothing about
// an algorithm while the machine stands still.
type hostMeter struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	all    []Processors
}

// hostEvery is how often it asks, hostSpell how many answers make the time over which the worst is sought.
const (
	hostEvery = time.Second
	hostSpell = 10
)

// startHostMeter has nothing to say where the kernel does not tell.
func startHostMeter() *hostMeter {
	ctx, cancel := context.WithCancel(context.Background())
	m := &hostMeter{cancel: cancel}
	kernel, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	m.wg.Go(func() {
		for ctx.Err() == nil {
			if s, err := kernel.Stat(); err == nil {
				c := s.CPUTotal
				m.all = append(m.all, Processors{All: c.User + c.Nice + c.System + c.Idle + c.Iowait + c.IRQ + c.SoftIRQ + c.Steal, Taken: c.Steal})
			}
			pause(ctx, hostEvery)
		}
	})
	return m
}

func (m *hostMeter) stop() []Processors {
	m.cancel()
	m.wg.Wait()
	return m.all
}

// HostTally sums it up, in percent of the processors' time.
type HostTally struct {
	// Taken is over the whole arm, Worst over its worst ten seconds.
	Taken float64 `json:"taken_pct"`
	Worst float64 `json:"worst_pct"`
}

// tallyHost is nil if nothing is known.
func tallyHost(all []Processors) *HostTally {
	if len(all) < 2 {
		return nil
	}
	share := func(from, to Processors) float64 {
		if to.All <= from.All {
			return 0
		}
		return 100 * (to.Taken - from.Taken) / (to.All - from.All)
	}
	t := &HostTally{Taken: share(all[0], all[len(all)-1])}
	t.Worst = t.Taken
	for i := hostSpell; i < len(all); i++ {
		t.Worst = max(t.Worst, share(all[i-hostSpell], all[i]))
	}
	return t
}

func (t *HostTally) String() string {
	if t == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f%%, %.0f%% in the worst ten seconds", t.Taken, t.Worst)
}
