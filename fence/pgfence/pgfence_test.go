package pgfence_test

import (
	"database/sql"
	"net/url"
	"testing"
	"time"

	"baton/fence/fencetest"
	"baton/fence/pgfence"
	"baton/internal/testserver"
)

// unhurried: whoever is cut off in the suite could be one that had just ended, if the machine stands still. That those who
// freeze are cut off is tested by itself.
var unhurried = pgfence.Config{EvictAfter: time.Minute}

func TestConformance(t *testing.T) {
	isolated := func(level sql.IsolationLevel) func(t *testing.T) fencetest.Subject {
		return func(t *testing.T) fencetest.Subject {
			return newLedger(t, openFast(t), pgfence.Config{Isolation: level, EvictAfter: unhurried.EvictAfter})
		}
	}
	for _, tt := range []struct {
		name   string
		writes int
		open   func(t *testing.T) fencetest.Subject
	}{
		{"ReadCommitted", 4000, isolated(sql.LevelReadCommitted)},
		{"RepeatableRead", 1000, isolated(sql.LevelRepeatableRead)},
		{"Serializable", 4000, isolated(sql.LevelSerializable)},
		{"Admit", 500, func(t *testing.T) fencetest.Subject {
			return viaAdmit{newLedger(t, openFast(t), unhurried)}
		}},
		{"Batch", 500, func(t *testing.T) fencetest.Subject {
			return viaBatch{newLedger(t, openFast(t), unhurried)}
		}},
		// As behind a pooler that cannot prepare.
		{"SimpleProtocol", 500, func(t *testing.T) fencetest.Subject {
			url, err := url.Parse(testserver.Shared(t, testserver.Postgres).Direct)
			if err != nil {
				t.Fatal(err)
			}
			query := url.Query()
			query.Set("default_query_exec_mode", "simple_protocol")
			url.RawQuery = query.Encode()
			return newLedger(t, open(t, url.String(), "synchronous_commit", "off"), unhurried)
		}},
		{"AdmitSerializableByDefault", 1000, func(t *testing.T) fencetest.Subject {
			return viaAdmit{newLedger(t, openFast(t, "default_transaction_isolation", "serializable"), unhurried)}
		}},
		{"BatchSerializableByDefault", 1000, func(t *testing.T) fencetest.Subject {
			return viaBatch{newLedger(t, openFast(t, "default_transaction_isolation", "serializable"), unhurried)}
		}},
		{"SQL", 500, func(t *testing.T) fencetest.Subject {
			return newSQLLedger(t, openFast(t), unhurried)
		}},
		{"SQLSerializable", 500, func(t *testing.T) fencetest.Subject {
			return newSQLLedger(t, openFast(t), pgfence.Config{Isolation: sql.LevelSerializable, EvictAfter: unhurried.EvictAfter})
		}},
		{"WithoutEviction", 500, func(t *testing.T) fencetest.Subject {
			return newLedger(t, openFast(t), pgfence.Config{EvictAfter: -1})
		}},
		// Two names may share a lock; here all of them do.
		{"CollidingKeys", 500, func(t *testing.T) fencetest.Subject {
			pool := openFast(t)
			exec(t, pool, `create or replace function baton_fence_key(resource text) returns bigint language sql stable as 'select 1::bigint'`)
			return newLedger(t, pool, unhurried)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fencetest.Run(t, fencetest.Options{Writes: tt.writes}, tt.open)
		})
	}
}
