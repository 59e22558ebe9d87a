package conversation

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// DefaultMaxWidth is how many participants may be asked at once unless a
// conversation says otherwise.
const DefaultMaxWidth = 64

// A Join says when participants that were asked at once have come together
// (R20). The zero Join is JoinAll.
//
// As long as a join is not met, the branches that are done are kept: a run that
// is resumed asks the others only.
type Join string

// The joins, with [JoinQuorum].
const (
	// JoinAll needs every branch. One that fails lets the others finish.
	JoinAll Join = "all"
	// JoinAny needs the first that is done, and cancels the rest.
	JoinAny Join = "any"
	// JoinBestEffort waits for all and needs one: a branch that fails is left
	// out, and stays so.
	JoinBestEffort Join = "best-effort"
)

// JoinQuorum needs the first k branches that are done, and cancels the rest. It
// is written quorum:K.
func JoinQuorum(k int) Join { return Join("quorum:" + strconv.Itoa(k)) }

// need returns how many of width branches must be done.
func (j Join) need(width int) (int, error) {
	switch j {
	case "", JoinAll:
		return width, nil
	case JoinAny, JoinBestEffort:
		return 1, nil
	}
	number, ok := strings.CutPrefix(string(j), "quorum:")
	k, err := strconv.Atoi(number)
	if !ok || err != nil || k < 1 {
		return 0, fmt.Errorf("join %q is not all, any, best-effort or quorum:K", j)
	}
	if k > width {
		return 0, fmt.Errorf("join %s needs more than the %d that are asked", j, width)
	}
	return k, nil
}

// FanOut is a Plan: all of Ask are asked at once; once Join is met, Synthesizer
// speaks, who has heard them all, and it is over. What it said is the single
// reply of the conversation; without a synthesizer, that is what the branches
// said, labelled, in the order of Ask (R20).
type FanOut struct {
	Ask         []agentbus.Speaker
	Join        Join
	Synthesizer agentbus.Speaker // "" is nobody
}

// Next returns the branches, then the synthesizer, then that it is done.
func (f FanOut) Next(turns []agentbus.Turn) (Step, error) {
	switch {
	case len(turns) < len(f.Ask):
		return Step{Together: f.Ask, Join: f.Join}, nil
	case f.Synthesizer != "" && len(turns) == len(f.Ask):
		return Step{Speaker: f.Synthesizer}, nil
	}
	return Step{Done: true}, nil
}

// faults returns what is wrong with f as the plan of c.
func (f FanOut) faults(c *Conversation) (faults []error) {
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("plan: fan-out "+format, args...))
	}
	if len(f.Ask) == 0 {
		fault("asks nobody")
		return faults
	}
	if twice, ok := repeated(f.Ask); ok {
		fault("asks %q twice", twice)
	}
	if len(f.Ask) > c.maxWidth() {
		fault("asks %d at once, and the limit is %d", len(f.Ask), c.maxWidth())
	}
	if _, err := f.Join.need(len(f.Ask)); err != nil {
		faults = append(faults, err)
	}
	turns := len(f.Ask)
	if f.Synthesizer != "" {
		turns++
	}
	if c.MaxTurns >= 1 && c.MaxTurns < turns {
		faults = append(faults, fmt.Errorf("max_turns: this fan-out takes %d turns, not %d", turns, c.MaxTurns))
	}
	return faults
}

// repeated returns the first name that stands in names twice.
func repeated(names []agentbus.Speaker) (agentbus.Speaker, bool) {
	seen := make(map[agentbus.Speaker]bool, len(names))
	for _, n := range names {
		if seen[n] {
			return n, true
		}
		seen[n] = true
	}
	return "", false
}
