// Package all has all experiments.
package all

import (
	"baton/lab"
	"baton/lab/churn"
	"baton/lab/fencingoff"
	"baton/lab/gcpause"
	"baton/lab/handoff"
	"baton/lab/handover"
	"baton/lab/killclean"
	"baton/lab/partition"
	"baton/lab/sequencer"
	"baton/lab/ttlsweep"
)

// Experiments are all that there are, by number.
var Experiments = []lab.Experiment{
	killclean.Experiment, ttlsweep.Experiment, partition.Experiment, gcpause.Experiment, fencingoff.Experiment,
	churn.Experiment, handover.Experiment, handoff.Experiment, sequencer.Experiment,
}
