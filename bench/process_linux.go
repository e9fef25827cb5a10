package main

import "syscall"

// ownGroup keeps an interrupt from the terminal from a child, which this
// process then ends in order, and lets no child outlive this process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
