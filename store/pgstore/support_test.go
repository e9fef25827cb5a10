package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
	"baton/internal/testserver"
	"baton/store/pgstore"
	"baton/storetest/drill"
)

// one is a store in a schema of its own, in a server that is not hurt, and a
// client to meddle with what the store keeps.
type one struct {
	*pgstore.Store
	t      *testing.T
	raw    *pgxpool.Pool
	url    string
	schema string
}

func newOne(t *testing.T) *one {
	t.Helper()
	return newOneAt(t, testserver.Shared(t, testserver.Postgres).Direct)
}

func newOneAt(t *testing.T, url string) *one {
	t.Helper()
	o := &one{t: t, url: url, schema: fmt.Sprintf("test_%d", schemas.Add(1))}
	o.Store = open(t, o.config())
	var err error
	if o.raw, err = pgxpool.New(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.raw.Close)
	return o
}

func (o *one) config() pgstore.Config {
	return pgstore.Config{URL: o.url, Schema: o.schema, Timeout: drill.Unhurried}
}

// in makes a text that is written for the schema "baton" one for this schema.
func (o *one) in(sql string) string { return strings.ReplaceAll(sql, "baton.", `"`+o.schema+`".`) }

func (o *one) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.raw.Exec(o.t.Context(), o.in(sql), args...); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](o *one, sql string, args ...any) (v T) {
	o.t.Helper()
	if err := o.raw.QueryRow(o.t.Context(), o.in(sql), args...).Scan(&v); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (o *one) begin() pgx.Tx {
	o.t.Helper()
	tx, err := o.raw.Begin(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func candidate(instance string) baton.Candidate {
	return baton.Candidate{NodeID: "node-" + instance, InstanceID: instance}
}

func (o *one) lead(group, instance string, ttl time.Duration) baton.Lease {
	o.t.Helper()
	l, err := o.Acquire(o.t.Context(), group, candidate(instance), ttl)
	if err != nil {
		o.t.Fatal(err)
	}
	return l
}

func (o *one) release(l baton.Lease) {
	o.t.Helper()
	if err := o.Release(o.t.Context(), l.ID()); err != nil {
		o.t.Fatal(err)
	}
}

// blocked waits until so many requests wait for a lock in this schema.
func (o *one) blocked(n int) {
	o.t.Helper()
	drill.Eventually(o.t, fmt.Sprint(n, " requests wait for a lock"), func() bool {
		return ask[int](o, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'`, o.schema) >= n
	})
}

// queue starts waits, one behind the other, and tells who was called.
func (o *one) queue(group string, instances ...string) <-chan string {
	o.t.Helper()
	called := make(chan string, len(instances))
	ctx, cancel := context.WithCancel(o.t.Context())
	done := make(chan struct{}, len(instances))
	for _, i := range instances {
		go func() {
			if o.Await(ctx, group, candidate(i)) == nil {
				called <- i
			}
			done <- struct{}{}
		}()
		drill.Eventually(o.t, i+" in line", func() bool {
			return ask[int](o, `SELECT count(*) FROM baton.place WHERE grp = $1 AND instance = $2`, group, i) == 1
		})
	}
	o.t.Cleanup(func() {
		cancel()
		for range instances {
			<-done
		}
	})
	return called
}

// within fails the test if nothing comes.
func within[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(drill.Patience):
		t.Fatalf("still not after %v: %s", drill.Patience, what)
	}
	return v
}

func wantKind(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: got %v, want %v", what, err, kind)
	}
}
