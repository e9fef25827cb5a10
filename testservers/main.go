// Command testservers obtains the real servers that Baton's tests use, and
// runs them on free loopback ports with data that is thrown away afterwards.
//
//	testservers obtain [kind...]   installs what is missing; "heavy" is all that takes many minutes to build
//	testservers serve [kind...]    starts servers and takes orders on standard input
//
// The main module does not require this one: its tests run the command. What
// serve says and understands is described in serve.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

func main() {
	// A child is told of its parent's death by the death of the thread that
	// started it. The main thread lives as long as the process.
	runtime.LockOSThread()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testservers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return usage()
	}
	// Whoever reads the answers may be gone: that is an error of the write, to
	// be cleaned up after, not a reason to drop dead.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch kinds := args[1:]; args[0] {
	case "obtain":
		return obtain(ctx, kinds)
	case "serve":
		return serve(ctx, os.Stdin, os.Stdout, kinds)
	}
	return usage()
}

func usage() error {
	return fmt.Errorf(`usage:
  testservers obtain [kind...]   installs what is missing; "heavy" is all that takes many minutes to build
  testservers serve [kind...]    starts servers, prints a line of JSON with the URL of each, and runs
                                 until standard input ends: then all of them and their data are gone
a kind is one of %s`, strings.Join(engineNames(), ", "))
}

// obtain makes the servers ready to be started, all kinds that are not heavy if
// none is named, and all that are for the name "heavy". One that cannot be had on this machine is reported, and is a failure only
// where CI=true, as it is for the tests that want it.
func obtain(ctx context.Context, kinds []string) error {
	switch {
	case len(kinds) == 0:
		kinds = slices.DeleteFunc(engineNames(), isHeavy)
	case slices.Equal(kinds, []string{"heavy"}):
		kinds = heavyKinds
	}
	for _, kind := range kinds {
		e, err := newEngine(kind)
		if err == nil {
			err = e.Obtain(ctx, os.Stderr)
		}
		var missing *unavailableError
		switch {
		case errors.As(err, &missing) && os.Getenv("CI") != "true":
			fmt.Fprintf(os.Stderr, "%-10s not available, its tests will be skipped: %v\n", kind, err)
		case err != nil:
			return fmt.Errorf("obtain %s: %w", kind, err)
		default:
			fmt.Fprintf(os.Stderr, "%-10s ready\n", kind)
		}
	}
	return nil
}
