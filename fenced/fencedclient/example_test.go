package fencedclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"baton"
	"baton/fence"
	"baton/fenced"
	"baton/fenced/fencedclient"
)

func Example() {
	server, stop := serve()
	defer stop()
	client, err := fencedclient.New(server, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	// What baton.Run hands to the work of each elected leader.
	work := func(l *baton.Leadership) *fencedclient.Resource {
		jobs, err := client.Take(l.Context(), "jobs") // before anything is read
		if err != nil {
			fmt.Println(err)
			return nil
		}
		point, err := jobs.Checkpoint(l.Context())
		if errors.Is(err, baton.ErrNotFound) {
			point.Data = json.RawMessage("nothing")
		}
		numbers, _ := jobs.Next(l.Context(), 100)
		fmt.Printf("term %d goes on from %s with numbers %d to %d\n", l.Term(), point.Data, numbers.First, numbers.Last)
		_, err = jobs.Save(l.Context(), json.RawMessage(fmt.Sprintf(`{"done":%d}`, numbers.Last)))
		if err != nil {
			fmt.Println(err)
		}
		return jobs
	}
	first, second := leader(1), leader(2)
	jobs := work(first)
	work(second)

	// The first wakes up.
	_, err = jobs.Next(first.Context(), 100)
	fmt.Println(errors.Is(err, fence.ErrStale), first.Valid(), second.Valid())
	// Output:
	// term 1 goes on from nothing with numbers 1 to 100
	// term 2 goes on from {"done":100} with numbers 102 to 201
	// true false true
}

func leader(term baton.Term) *baton.Leadership {
	clock := baton.SystemClock()
	l, _ := baton.NewLeadership(baton.LeadershipConfig{
		Token: baton.Token{Group: "workers", Term: term, InstanceID: fmt.Sprint("i", term)},
		Clock: clock, Until: clock.Now() + time.Minute,
	})
	return l
}

func serve() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "fenced")
	if err != nil {
		panic(err)
	}
	store, err := fenced.Open(context.Background(), filepath.Join(dir, "fenced.db"), true, time.Minute)
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(fenced.NewServer(store, slog.New(slog.DiscardHandler), time.Minute))
	return server.URL, func() {
		server.Close()
		_ = store.Close()
		_ = os.RemoveAll(dir)
	}
}
