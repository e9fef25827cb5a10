// Command baton is Baton's server and command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"baton/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks; from then on the next one kills.
	context.AfterFunc(ctx, stop)
	program := cli.Program{Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv}
	os.Exit(program.Main(ctx, os.Args[1:]))
}
