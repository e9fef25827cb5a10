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
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		// The first signal asks; the next one kills, from before anybody can see that the first was heard.
		signal.Stop(signals)
		stop()
	}()
	program := cli.Program{Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv}
	os.Exit(program.Main(ctx, os.Args[1:]))
}
