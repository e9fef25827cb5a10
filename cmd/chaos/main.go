// Command chaos kills, cuts off and freezes the leader of a running fleet, and
// tells what happened after. See baton/internal/fleet/chaos.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"baton/internal/fleet/chaos"
)

func main() {
	// A terminal that is closed must not leave a node frozen.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit(chaos.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
