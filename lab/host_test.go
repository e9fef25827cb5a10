package lab

import "testing"

func TestTallyHost(t *testing.T) {
	// Two processors for a minute, of which the host takes one for six seconds.
	minute := []Processors{{}}
	for i := range 60 {
		last := minute[len(minute)-1]
		last.All += 2
		if 20 <= i && i < 26 {
			last.Taken++
		}
		minute = append(minute, last)
	}
	if got, want := tallyHost(minute).String(), "5%, 30% in the worst ten seconds"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := tallyHost(minute[20:24]).String(); got != "50%, 50% in the worst ten seconds" {
		t.Errorf("an arm that is shorter: %s", got)
	}
	if got := tallyHost(minute[:1]); got != nil || got.String() != "unknown" {
		t.Errorf("of a single answer: %v", got)
	}
}
