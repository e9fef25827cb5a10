package pgfence_test

import (
	"database/sql"
	"strings"
	"testing"

	"baton/fence/fencetest"
	"baton/fence/pgfence"
)

// TestSuiteSeesFaults changes the schema into what one might have written
// instead, and shows that the suite notices.
func TestSuiteSeesFaults(t *testing.T) {
	const sharedLock = "done := pg_advisory_xact_lock_shared(baton_fence_key(resource)) IS NOT NULL;"
	for _, tt := range []struct {
		name      string
		isolation sql.IsolationLevel
		edits     []string // what is replaced, by what
		seenBy    []string
	}{
		{
			name: "the row is locked FOR KEY SHARE", isolation: sql.LevelReadCommitted,
			// An update that leaves the key alone, as Adopt's is, does not wait for that.
			edits: []string{
				sharedLock, "PERFORM FROM fenced_resource WHERE name = resource FOR KEY SHARE;",
				"PERFORM pg_advisory_xact_lock(key);", "PERFORM FROM fenced_resource WHERE name = resource FOR NO KEY UPDATE;",
			},
			seenBy: []string{"PausedBetweenCheckAndEffect"},
		},
		{
			name: "check without a lock", isolation: sql.LevelReadCommitted,
			edits:  []string{sharedLock, ""},
			seenBy: []string{"PausedBetweenCheckAndEffect"},
		},
		{
			name: "the snapshot is older than the lock", isolation: sql.LevelSerializable,
			edits:  []string{"FROM fenced_resource WHERE name = resource FOR SHARE;", "FROM fenced_resource WHERE name = resource;"},
			seenBy: []string{"TwoLeadersUnordered"},
		},
		{
			name: "no instance check", isolation: sql.LevelReadCommitted,
			edits: []string{
				"AND held_instance = token_instance THEN", "THEN",
				"OR token_term = held_term AND token_instance <> held_instance THEN", "THEN",
			},
			seenBy: []string{"InstanceOfSameTerm", "AdoptRace"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			broken := pgfence.Schema
			for i := 0; i < len(tt.edits); i += 2 {
				if !strings.Contains(broken, tt.edits[i]) {
					t.Fatalf("the schema has no %q", tt.edits[i])
				}
				broken = strings.ReplaceAll(broken, tt.edits[i], tt.edits[i+1])
			}
			fencetest.MustFail(t, fencetest.Options{}, func(t *testing.T) fencetest.Subject {
				pool := openFast(t)
				exec(t, pool, broken)
				return newSQLLedger(t, pool, pgfence.Config{Isolation: tt.isolation}) // all that it does is in the schema
			}, tt.seenBy...)
		})
	}
}
