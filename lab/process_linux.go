package lab

import "syscall"

// dieWithParent leaves nothing running, nor frozen, when the lab itself is killed.
func dieWithParent() *syscall.SysProcAttr {
	// A group of its own: Ctrl-C is for the lab, which ends the others in order.
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
