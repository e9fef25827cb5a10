package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// machine is what the figures were taken on.
type machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	Memory     string  `json:"memory"`
	System     string  `json:"system"`
	Go         string  `json:"go"`
	Revision   string  `json:"revision"`
	Fsync      string  `json:"fsync"`
	When       string  `json:"when"`
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
}

// busy says whether others used the machine before the run began.
func (m machine) busy() bool { return m.LoadBefore > float64(m.Cores)/2 }

func describeMachine(dir string) machine {
	return machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: field("/proc/meminfo", "MemTotal"),
		System: said("uname", "-srm"), Go: runtime.Version(), Revision: said("git", "describe", "--always", "--dirty"),
		Fsync: fsyncTime(dir), When: time.Now().UTC().Format("2006-01-02 15:04 MST"), LoadBefore: loadAverage(),
	}
}

// field is the first value of that name in a file of "name : value" lines.
func field(file, name string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
		if key, value, ok := strings.Cut(scan.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func said(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// fsyncTime is what the disk under dir takes for what every commit needs.
func fsyncTime(dir string) string {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return "unknown"
	}
	defer func() { _ = f.Close() }()
	block, times := make([]byte, 4096), make([]time.Duration, 0, 200)
	for range cap(times) {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return "unknown"
		}
		if err := f.Sync(); err != nil {
			return "unknown"
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return fmt.Sprintf("4 KiB appended and synced in p50 %v, p99 %v", quantile(times, 0.5).Round(time.Microsecond), quantile(times, 0.99).Round(time.Microsecond))
}

// cpuOf is the CPU time that these processes have used, where that can be told.
func cpuOf(pids []int) time.Duration {
	const tick = 10 * time.Millisecond // of the kernel's figures for programs, on all of Linux
	var sum time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0
		}
		// The name, in brackets, may contain anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, i := range []int{11, 12} { // user and system
			if i < len(fields) {
				n, _ := strconv.Atoi(fields[i])
				sum += time.Duration(n) * tick
			}
		}
	}
	return sum
}

func cpuOfSelf() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentMemory is in bytes; 0 where it cannot be told.
func residentMemory(pid int) int64 {
	kb, _ := strconv.ParseInt(strings.TrimSuffix(field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"), " kB"), 10, 64)
	return kb << 10
}

// sizeOf is what the files below dir hold.
func sizeOf(dir string) (sum int64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
