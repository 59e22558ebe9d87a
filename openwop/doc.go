// Package openwop is the host of the OpenWOP v1 wire (agent-events E1 to E75): it
// tells what runs do, as events and snapshots, and drives small workflows whose
// nodes and fixtures the public scenarios of that wire exercise.
//
// A run of a workflow is an execution like any other: it has a lease, it is taken
// up by another process when its driver dies, it parks on interrupts, and its
// state is a fold of its event log, which is all that is stored of it.
package openwop
