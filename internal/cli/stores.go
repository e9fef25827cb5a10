package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"baton"
	"baton/api"
	_ "baton/store/all" // so that --store knows them
	"baton/store/memstore"
	"baton/store/raftstore"
)

// embedded are the stores that a server has in itself; --store knows them by name.
var embedded = []struct {
	name string
	open func(ctx context.Context, f serverFlags, log *slog.Logger) (baton.Store, error)
}{
	{"raft", openRaft},
	{"memory", openMemory},
}

// outside are the kinds of store that a server can be in front of: all but
// another Baton server.
func outside() []baton.StoreKind {
	return slices.DeleteFunc(baton.StoreKinds(), func(k baton.StoreKind) bool { return k.Name == "baton" })
}

// storeForms are what --store can be.
func storeForms() []string {
	var forms []string
	for _, e := range embedded {
		forms = append(forms, e.name)
	}
	for _, k := range outside() {
		forms = append(forms, k.Form)
	}
	return forms
}

// checkStore refuses what no server can keep leases in.
func checkStore(store string) error {
	for _, e := range embedded {
		if store == e.name {
			return nil
		}
	}
	scheme, _, isURL := strings.Cut(store, "://")
	if isURL && slices.ContainsFunc(outside(), func(k baton.StoreKind) bool { return slices.Contains(k.Schemes, scheme) }) {
		return nil
	}
	switch {
	case isURL:
		store = scheme + "://..." // there may be a password in it
	case strings.Contains(store, "@"):
		store = "..." + store[strings.LastIndex(store, "@"):] // a URL without its scheme
	}
	return usagef("--store %q is not known: want one of %s", store, strings.Join(storeForms(), ", "))
}

// openStore opens a store that checkStore has let through. One that is away
// is waited for, as the other servers of a cluster are.
func openStore(ctx context.Context, f serverFlags, log *slog.Logger) (baton.Store, error) {
	for _, e := range embedded {
		if f.store == e.name {
			return e.open(ctx, f, log)
		}
	}
	logging.Disable() // Redis' client says on stderr what is logged here
	for {
		store, err := baton.OpenStore(ctx, f.store)
		switch {
		case err == nil:
			return store, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, baton.ErrUnavailable):
			return nil, badStore(err)
		}
		log.Warn("the store cannot be reached; it is tried again", "err", err)
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// badStore is a mistake of whoever named the store, unless it says itself what it is.
func badStore(err error) error {
	if baton.IsAnswer(err) {
		return err
	}
	return &usageError{err: err}
}

// openMemory starts above every term that a run before this one can have
// granted, as long as the machine's clock was not set back.
func openMemory(context.Context, serverFlags, *slog.Logger) (baton.Store, error) {
	return memstore.New(memstore.Config{FirstTerm: baton.Term(time.Now().UnixMilli()) << 10})
}

// logCaveats warns of what the store's own settings cost. What holds for every store of
// its kind is worth knowing, and no reason to be alarmed.
func logCaveats(ctx context.Context, log *slog.Logger, g baton.Guarantees) {
	var usual []string
	all, _ := allStores() // without them everything is a warning
	for _, s := range all {
		if s.Store == g.Store {
			usual = s.Caveats
		}
	}
	for _, caveat := range g.Caveats {
		level := slog.LevelWarn
		if slices.Contains(usual, caveat) {
			level = slog.LevelInfo
		}
		log.Log(ctx, level, caveat, "store", g.Store)
	}
}

// storeInfo is one line of what "baton stores" prints.
type storeInfo struct {
	// URL is what --store is given.
	URL     string   `json:"url"`
	Schemes []string `json:"schemes,omitempty"`
	api.Guarantees
}

func allStores() ([]storeInfo, error) {
	memory, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = memory.Close() }()
	all := []storeInfo{
		{URL: "raft", Guarantees: api.GuaranteesOf(raftstore.Guarantees())},
		{URL: "memory", Guarantees: api.GuaranteesOf(memory.Guarantees())},
	}
	for _, k := range outside() {
		all = append(all, storeInfo{URL: k.Form, Schemes: k.Schemes, Guarantees: api.GuaranteesOf(k.Guarantees)})
	}
	return all, nil
}

func (a *app) storesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stores",
		Short: "Show which stores there are, and what each promises",
		Long: `Shows the stores that "baton server --store" knows, and what each can promise. A
server that runs may know more exactly what its own can: it says so at
/readyz, and in its log when it starts. docs/stores.md has the reasons.`,
		Example: `  baton stores
  baton stores -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := allStores()
			if err != nil {
				return err
			}
			return a.print(struct {
				Stores []storeInfo `json:"stores"`
			}{all}, func(w io.Writer) error { return writeStores(w, all) })
		},
	}
}

// columns explains those of the table whose names do not.
const columns = `
OPENS WITHIN  how long after the end of a lease the group opens at the latest, while the store is healthy
CLOCK         which clock judges leases
QUORUM        a renewal is confirmed by a majority of the store's servers
EXTENDS       a renewal may ask for more than the TTL that was granted
WAITING       how candidates wait: in a line, where the first is called, or by looking for themselves
TRANSFERS     a leader can be made to step down, and to hand over to a named node
`

func writeStores(w io.Writer, all []storeInfo) error {
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{
			s.Store, millis(s.MinTTL) + " to " + millis(s.MaxTTL), millis(s.TTLStep), cmp.Or(millis(s.ExpiryLag), "at once"), s.Time,
			yes(s.QuorumRenewals), strings.Join(survives(s.Guarantees), ", "), yes(s.Extends), s.Waiting, yes(s.Transfers),
		})
	}
	err := table(w, []string{"STORE", "TTL", "STEP", "OPENS WITHIN", "CLOCK", "QUORUM", "TERMS SURVIVE", "EXTENDS", "WAITING", "TRANSFERS"}, rows)
	if err == nil {
		_, err = io.WriteString(w, columns)
	}
	for _, s := range all {
		if err == nil {
			_, err = fmt.Fprintf(w, "\n%s\n  --store %s\n", s.Store, s.URL)
		}
		for _, caveat := range s.Caveats {
			if err == nil {
				_, err = fmt.Fprintf(w, "  - %s\n", caveat)
			}
		}
	}
	return err
}

// survives is what terms keep rising through.
func survives(g api.Guarantees) []string {
	var all []string
	for _, s := range []struct {
		what string
		does bool
	}{{"restart", g.DurableTerms}, {"failover", g.FailoverTerms}, {"deletion", g.DeletionTerms}} {
		if s.does {
			all = append(all, s.what)
		}
	}
	return all
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
