package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"time"

	"baton"
	"baton/internal/cli"
	"baton/server"
	"baton/server/httpapi"
	"baton/store/raftstore"
)

// This program is also two servers, which it starts as its own children.
const (
	// profiledServer is the baton command with a CPU profile of its life.
	profiledServer = "profiled-server"
	// scaleServer is what "baton server" is made of, with a log that is
	// compacted when the measurement wants it, and counters to read.
	scaleServer = "scale-server"
)

var children = map[string]func(ctx context.Context, args []string) int{
	profiledServer: runProfiled,
	scaleServer:    runScaleServer,
	storesCommand:  runStores,
}

func runProfiled(ctx context.Context, args []string) int {
	stop, err := profileSelf(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	code := cli.Program{Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv}.Main(ctx, args[1:])
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return code
}

// profileSelf writes a CPU profile of this process, until it is stopped.
func profileSelf(file string) (stop func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func runScaleServer(ctx context.Context, args []string) int {
	f := flag.NewFlagSet(scaleServer, flag.ContinueOnError)
	data := f.String("data", "", "directory")
	peer := f.String("peer", "", "address")
	entries := f.Uint64("snapshot-entries", 0, "after how many entries the log is compacted")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if err := serveScale(ctx, *data, *peer, *entries); err != nil && !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func serveScale(ctx context.Context, data, peer string, entries uint64) (err error) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	store, err := raftstore.Open(ctx, raftstore.Config{Dir: data, Listen: peer, SnapshotEntries: entries, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	service, err := server.New(store, server.Config{DefaultPolicy: baton.Policy{MaxTTL: holdTTL}, Logger: log})
	if err != nil {
		return err
	}
	defer service.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := httpapi.New(service, httpapi.Config{Logger: log})
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("GET /bench/stats", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(store.Stats()) // whoever asks will see that it is cut short
	})
	srv := httpapi.NewServer(mux, log)
	context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = handler.Shutdown(bounded)
		_ = srv.Shutdown(bounded)
	})
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": "http://" + listener.Addr().String()}); err != nil {
		return errors.Join(err, listener.Close())
	}
	return srv.Serve(listener)
}
