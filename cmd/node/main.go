// Command node takes part in the elections of a fleet and, while it leads, does
// the fleet's singleton work. See baton/internal/fleet/node.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"baton/internal/fleet/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit(node.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
