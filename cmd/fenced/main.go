// Command fenced is the protected resource of the fleet: ticks, sequences and
// checkpoints that only the present leader can write. See baton/fenced.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"baton/fenced"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	status := fenced.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(status)
}
