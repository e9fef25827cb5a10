package boottime

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME, since Linux 2.6.39

// sinceBoot asks the kernel by itself rather than through x/sys, so that the
// root package needs nothing but the standard library.
func sinceBoot() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		// Only a sandbox that filters system calls gets here. Falling back
		// between two readings would mix two clocks, so this is the end.
		panic("boottime: clock_gettime(CLOCK_BOOTTIME): " + errno.Error())
	}
	return time.Duration(ts.Nano())
}
