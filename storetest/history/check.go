package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verdict is the outcome of a check.
type Verdict string

const (
	// OK: a correct store could have answered so.
	OK Verdict = "ok"
	// Illegal: no correct store could.
	Illegal Verdict = "illegal"
	// Unknown: the search ran out of time. It is not a pass.
	Unknown Verdict = "unknown"
)

// Options of a check. The zero value suits a store on this machine and a
// network that repeats nothing.
type Options struct {
	// Duplicates: requests may have been delivered more than once.
	Duplicates bool
	// Slack is by how much the store's clock may run ahead of the log's over one lease. 5 ms if zero.
	Slack time.Duration
	// Timeout bounds the search in each group. A minute if zero. It cannot
	// help in a testing/synctest bubble, where no time passes during a search.
	Timeout time.Duration
}

// Result says what was found, for the worst of the groups.
type Result struct {
	Verdict Verdict
	// Group is where, if the verdict is not OK.
	Group string
	// Detail says which answer fits no order of events, and what came before it.
	Detail string

	model porcupine.Model
	info  porcupine.LinearizationInfo
}

// WriteHTML draws the history of the group, for a browser.
func (r Result) WriteHTML(w io.Writer) error {
	if r.Group == "" {
		return fmt.Errorf("draw a history: every group is ok")
	}
	return porcupine.Visualize(r.model, r.info, w)
}

// Check judges the requests of all groups. Groups must not have been deleted meanwhile.
func Check(ops []Op, o Options) Result {
	if o.Slack == 0 {
		o.Slack = 5 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	groups := map[string][]Op{}
	for _, op := range ops {
		groups[op.Group] = append(groups[op.Group], op)
	}
	worst := Result{Verdict: OK}
	for group, ops := range groups {
		slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Began, b.Began) })
		r := checkGroup(group, ops, o)
		if r.Verdict == Illegal {
			return r
		}
		if r.Verdict == Unknown {
			worst = r
		}
	}
	return worst
}

func checkGroup(group string, ops []Op, o Options) Result {
	ev := gather(ops, o.Duplicates)
	contradiction := ev.narrow()
	m := model{ghosts: ev.ghosts, slack: o.Slack}.porcupine()
	var operations []porcupine.Operation
	clients := map[string]int{}
	for _, f := range ev.facts {
		if _, ok := clients[f.op.Client]; !ok {
			clients[f.op.Client] = len(clients)
		}
		operations = append(operations, porcupine.Operation{
			ClientId: clients[f.op.Client], Input: f, Call: f.began, Return: f.ended,
		})
	}
	if contradiction != "" {
		// There is nothing to search; the drawing is of what there is.
		_, info := porcupine.CheckOperationsVerbose(m, operations, time.Millisecond)
		return Result{Verdict: Illegal, Group: group, Detail: contradiction, model: m, info: info}
	}
	found, info := porcupine.CheckOperationsVerbose(m, operations, o.Timeout)
	r := Result{Group: group, model: m, info: info}
	switch found {
	case porcupine.Ok:
		return Result{Verdict: OK}
	case porcupine.Illegal:
		r.Verdict, r.Detail = Illegal, explain(ev.facts, info)
	default:
		r.Verdict, r.Detail = Unknown, fmt.Sprintf("no order found within %v; %s", o.Timeout, explain(ev.facts, info))
	}
	return r
}

// explain shows the end of the longest order that was found, and the first answer that fits nowhere in it.
func explain(facts []fact, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[factKey]bool{}
	for _, op := range longest {
		placed[op.Input.(fact).key()] = true
	}
	var stuck *fact
	for i, f := range facts {
		if !placed[f.key()] && (stuck == nil || f.ended < stuck.ended) {
			stuck = &facts[i]
		}
	}
	var b strings.Builder
	if stuck != nil {
		fmt.Fprintf(&b, "this answer fits no order of events:\n  %v\n", *stuck)
	}
	const shown = 12
	fmt.Fprintf(&b, "%d of %d facts fit; the last of them:\n", len(longest), len(facts))
	for _, op := range longest[max(0, len(longest)-shown):] {
		fmt.Fprintf(&b, "  %v\n", op.Input)
	}
	return b.String()
}

// factKey tells one fact from another.
type factKey struct {
	what         factKind
	instance     string
	term         uint64
	began, ended int64
}

func (f fact) key() factKey {
	return factKey{f.what, f.instance, uint64(f.term), f.began, f.ended}
}
