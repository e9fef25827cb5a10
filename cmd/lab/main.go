// Command lab runs experiments on fleets of real processes: it kills, cuts off
// and freezes leaders, checks what came of it, and reports. See baton/lab.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"baton/lab"
	"baton/lab/all"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit(lab.Main(ctx, all.Experiments, os.Args[1:], os.Stdout, os.Stderr))
}
