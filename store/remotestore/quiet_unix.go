//go:build unix

package remotestore

import (
	"errors"
	"net"
	"syscall"
)

// isQuiet reports whether there is nothing to read on an idle connection, not even its end.
func isQuiet(conn net.Conn) bool {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, err := syscall.Read(int(fd), one[:])
		quiet = errors.Is(err, syscall.EAGAIN)
		return true // whatever it is, it is not waited for
	})
	return err == nil && quiet
}
