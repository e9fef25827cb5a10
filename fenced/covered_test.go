package fenced_test

import (
	"encoding/json"
	"testing"

	"baton/fenced/fencedclient"
)

// Checkpoints say which work they are for, and the audit finds what was done twice
// or left out.
func TestWorkIsAudited(t *testing.T) {
	eachDatabase(t, func(t *testing.T, open func(testing.TB) string) {
		p := start(t, "-db", open(t))
		l := lead(t, token(5, "a"))
		jobs, err := p.client.Take(l.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		save := func(first, last int64) {
			t.Helper()
			if _, err := jobs.SaveAfter(l.Context(), fencedclient.Units{First: first, Last: last}, json.RawMessage(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		audit := func(units, redone, skipped int64) {
			t.Helper()
			a, err := p.client.Audit(t.Context(), "")
			if err != nil || a.Units != units || a.Redone != redone || a.Skipped != skipped || a.OK != (redone+skipped == 0) {
				t.Errorf("got %+v (%v), want %d units, %d redone, %d skipped", a, err, units, redone, skipped)
			}
		}
		audit(0, 0, 0)
		if _, err := jobs.Save(l.Context(), json.RawMessage(`{}`)); err != nil { // covers nothing
			t.Fatal(err)
		}
		save(1, 10)
		save(11, 11)
		audit(11, 0, 0)
		save(10, 14)
		audit(16, 2, 0)
		save(18, 20)
		audit(19, 2, 3)
		writes, err := p.client.Writes(t.Context(), "jobs", 0)
		if err != nil || len(writes) != 5 || writes[0].Covers != nil || *writes[4].Covers != (fencedclient.Units{First: 18, Last: 20}) {
			t.Errorf("got %+v (%v)", writes, err)
		}
	})
}
