package conversation

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
)

// How much of what a model thought is told (E25).
const (
	ReasoningSummary = "summary"
	ReasoningFull    = "full"
	ReasoningOff     = "off"
)

const (
	// summaryRunes is how long a summary is: four characters for each of 512
	// tokens.
	summaryRunes = 4 * 512
	// What is said is stored while it is said, in batches: so often, and so much.
	tellEvery = 250 * time.Millisecond
	tellBytes = 8 << 10
)

// summary returns what is told of a reasoning.
func (o *Options) summary(s string) string {
	if o.Reasoning == ReasoningFull || len(s) <= summaryRunes {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > summaryRunes {
			return s[:i]
		}
	}
	return s
}

// verbosity is what the events call it.
func (o *Options) verbosity() string {
	if o.Reasoning == ReasoningFull {
		return ReasoningFull
	}
	return ReasoningSummary
}

// A tale is what is told of an answer while it comes, as events: a part of the
// text, a part of the reasoning, that an attempt was void. Those of a branch
// wait for its end, and are no more than the last.
type tale struct {
	d      *driver
	intent *intent
	branch bool

	untold  []agentbus.Event // not stored yet
	text    strings.Builder  // not in an event yet
	why     strings.Builder
	since   time.Time // when something was stored last
	deltas  int       // of the reasoning
	thought int       // runes of it
	spoke   bool      // some text is in an event
}

func (d *driver) tale(now *intent, branch bool) *tale {
	return &tale{d: d, intent: now, branch: branch, since: time.Now()}
}

// add takes the next piece, and stores what has come together.
func (l *tale) add(ctx context.Context, c *agentbus.Chunk) {
	if l.branch {
		return
	}
	l.text.WriteString(c.Text)
	if why := c.Reasoning; l.d.options.Reasoning != ReasoningOff {
		if left := summaryRunes - l.thought; l.d.options.Reasoning != ReasoningFull {
			why = firstRunes(why, left)
		}
		l.thought += utf8.RuneCountInString(why)
		l.why.WriteString(why)
	}
	if l.text.Len()+l.why.Len() < tellBytes && time.Since(l.since) < tellEvery {
		return
	}
	l.cut(false)
	if len(l.untold) == 0 {
		return
	}
	// Without its lease the driver learns it with the result. What was lost here is
	// in that, too.
	_, _ = l.d.options.Runs.AppendEvents(context.WithoutCancel(ctx), l.d.execution.Lease, l.untold...)
	l.untold, l.since = nil, time.Now()
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// cut makes events of what was said since the last.
func (l *tale) cut(last bool) {
	d, now := l.d, l.intent
	if l.why.Len() > 0 {
		l.untold = append(l.untold, d.of(now, agentbus.EventAgentReasoningDelta, agentbus.AgentReasoningDelta{
			AgentID: d.refs[now.who].AgentID, Delta: l.why.String(), Sequence: l.deltas, Verbosity: d.options.verbosity(),
		}))
		l.deltas++
		l.why.Reset()
	}
	if l.text.Len() > 0 || last && l.spoke {
		l.untold = append(l.untold, d.of(now, agentbus.EventOutputChunk, agentbus.OutputChunk{
			NodeID: d.nodes[now.who], RunID: d.execution.ID, Chunk: l.text.String(), IsLast: last,
		}))
		l.spoke = true
		l.text.Reset()
	}
}

// void tells that the attempt failed. What it said and nobody was told is
// forgotten.
func (l *tale) void() {
	l.untold = keepRetries(l.untold)
	l.text.Reset()
	l.why.Reset()
	l.deltas, l.thought, l.spoke = 0, 0, false
	l.untold = append(l.untold, l.d.of(l.intent, agentbus.EventNodeRetried, agentbus.NodeRetried{
		NodeID: l.d.nodes[l.intent.who], Attempt: l.intent.turn.Attempts - 1,
		LastError: agentbus.EventError{Code: string(agentbus.CodeAgentUnavailable), Message: "the attempt failed, and another one follows"},
	}))
}

// end returns what is still to be told, with the result of the turn.
func (l *tale) end(done bool) []agentbus.Event {
	if l == nil {
		return nil
	}
	if done {
		l.cut(true)
		return l.untold
	}
	return keepRetries(l.untold)
}

func keepRetries(events []agentbus.Event) (kept []agentbus.Event) {
	for i := range events {
		if events[i].Type == agentbus.EventNodeRetried {
			kept = append(kept, events[i])
		}
	}
	return kept
}

// live reports whether an event tells of an answer as it came, or as its run was
// asked for: a replay, which has only what it came to, takes these as they are
// recorded.
func live(eventType string) bool {
	switch eventType {
	case agentbus.EventOutputChunk, agentbus.EventAgentReasoningDelta, agentbus.EventNodeRetried, agentbus.EventAgentReasoned, agentbus.EventEscalationSuppressed:
		return true
	}
	return false
}
