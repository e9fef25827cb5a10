package zkstore

import (
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"time"

	"baton"
)

// oldest is the first version that is maintained in any form and has all that is used here.
var oldest = [2]int{3, 5}

var versionText = regexp.MustCompile(`(?m)^Zookeeper version: (\d+)\.(\d+)`)

// tooOld judges what a server says of itself. What cannot be read is not held against it.
func tooOld(said string) error {
	m := versionText.FindStringSubmatch(said)
	if m == nil {
		return nil
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major > oldest[0] || major == oldest[0] && minor >= oldest[1] {
		return nil
	}
	return &baton.ConflictError{
		Reason:  baton.ConflictUnsupported,
		Message: fmt.Sprintf("ZooKeeper is version %d.%d: want %d.%d or later", major, minor, oldest[0], oldest[1]),
	}
}

// checkVersion asks the server by the one four-letter word that is allowed
// unless an operator forbids it. Without an answer the version is not judged.
func checkVersion(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", server)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if conn.SetDeadline(deadline) != nil {
		return nil
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
	return tooOld(string(said))
}
