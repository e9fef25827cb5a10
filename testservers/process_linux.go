package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The processes of a server are those whose working directory lies in the
// server's. Neither the process group nor the parent tells them: Postgres
// gives each of its processes a session of its own, and a child whose parent
// was killed gets another.

// supported says whether servers can be run on this system.
func supported() error { return nil }

// serverCommand prepares a process that runs as the servers' user and does not
// outlive this one.
func serverCommand(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	// Its own group, so that an interrupt from the terminal reaches only this
	// process, which then ends the servers in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(serverUser.uid), Gid: uint32(serverUser.gid)}
	}
	return cmd
}

// processesIn lists the live processes whose working directory is dir or below.
func processesIn(dir string) ([]int, error) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		// Those that are gone or another user's cannot be read, and are not ours.
		cwd, err := os.Readlink(filepath.Join("/proc", p.Name(), "cwd"))
		if err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// processState is the letter that the kernel shows for a process: T if it is
// stopped, Z if it is dead and not yet waited for, 0 if there is none.
func processState(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in brackets, may contain anything.
	after := stat[strings.LastIndexByte(string(stat), ')')+1:]
	if len(after) < 2 {
		return 0
	}
	return after[1]
}

// pauseAll stops the processes in dir and returns when all of them stand
// still, those included that were started meanwhile.
func pauseAll(dir string) error {
	return untilAll(dir, "stop", func(pid int) (bool, error) {
		if processState(pid) == 'T' {
			return true, nil
		}
		return false, syscall.Kill(pid, syscall.SIGSTOP)
	})
}

func resumeAll(dir string) error {
	return untilAll(dir, "continue", func(pid int) (bool, error) {
		if processState(pid) != 'T' {
			return true, nil
		}
		return false, syscall.Kill(pid, syscall.SIGCONT)
	})
}

// killAll ends the processes in dir and returns when none is left.
func killAll(dir string) error {
	return untilAll(dir, "kill", func(pid int) (bool, error) {
		return false, syscall.Kill(pid, syscall.SIGKILL)
	})
}

// untilAll does what it is given to every process in dir, again and again,
// until it is said to be done for all that there are.
func untilAll(dir, what string, do func(pid int) (done bool, err error)) error {
	for deadline := time.Now().Add(stopWithin); ; time.Sleep(pollEvery) {
		pids, err := processesIn(dir)
		if err != nil {
			return err
		}
		left := 0
		for _, pid := range pids {
			done, err := do(pid)
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("%s process %d: %w", what, pid, err)
			}
			if !done {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s the processes in %s: %d of %d have not after %v", what, dir, left, len(pids), stopWithin)
		}
	}
}
