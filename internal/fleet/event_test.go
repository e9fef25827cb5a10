package fleet

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A log can be read at any time: what was logged is there, and a line that its
// writer died over is not in the way.
func TestEventsAreThereOnceLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n1.events")
	log, err := OpenEventLog(path, "n1", -time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	before := Now()
	log.Log(Event{Type: Elected, Term: 7})
	log.Log(Event{Type: WriteAccepted, Term: 7, At: 5, Seq: 9, Count: 3})
	torn, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := torn.WriteString(`{"at_ns":1,"no`); err != nil {
		t.Fatal(err)
	}
	if err := torn.Close(); err != nil {
		t.Fatal(err)
	}
	events, err := ReadEvents(path) // before Close
	if err != nil || len(events) != 2 {
		t.Fatalf("%+v, %v", events, err)
	}
	if e := events[0]; e.Node != "n1" || e.Type != Elected || e.Term != 7 || e.At < before || e.At > Now() {
		t.Errorf("%+v", e)
	}
	if off := time.Since(time.UnixMilli(events[0].WallMS)); off < 59*time.Minute {
		t.Errorf("the node's wall clock shows no skew: it is off by %v", off)
	}
	if e := events[1]; e.At != 5 || e.Seq != 9 || e.Count != 3 {
		t.Errorf("%+v", e)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	var none *EventLog
	none.Log(Event{Type: Elected})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}
