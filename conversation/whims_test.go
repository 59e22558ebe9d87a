package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// whims are backends that answer as a seed tells, turn by turn and try by try:
// after void attempts, with tools, with text that is no UTF-8, with errors, with
// silence, or by aborting the run; and, unless they are calm, with questions,
// decisions, secrets, and by ending the drive in any other way.
type whims struct {
	seed uint64
	calm bool
	m    *recorder

	mu             sync.Mutex // guards all below
	end            context.CancelCauseFunc
	above, deepest int // the depth of who calls, and the highest limit so far; 0: none is told
	tries          map[agentbus.TurnKey]uint64
	broken         error // what was promised and not kept
	moments        int   // until the drive is ended
	cause          error // by this
	older          bool  // a drive did not read what was told, as those of older versions
}

// endsAt has a drive ended at the nth moment of its own: see moment.
func (w *whims) endsAt(n int, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moments, w.cause = n, cause
}

// moment is one in which a drive can be ended that calls nobody: its plan is asked,
// or its journal.
func (w *whims) moment() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moments--; w.moments == 0 {
		w.end(w.cause)
	}
}

func keyOf(c *agentbus.Call) agentbus.TurnKey {
	l := &c.Lineage
	return agentbus.TurnKey{Run: l.Run, Path: l.Path, Parent: l.Parent, ID: l.Turn}
}

func (w *whims) random(c *agentbus.Call) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := keyOf(c)
	w.tries[key]++
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key.Path + string(key.ID))) // never fails
	return rand.New(rand.NewPCG(w.seed, sum.Sum64()+w.tries[key]))
}

// allowed keeps what is wrong with a call: its intent is not in the journal, or its
// turn is done (I2); or it is made above the limit of depth, or not below its caller
// (I3).
func (w *whims) allowed(c *agentbus.Call) {
	state := w.m.stateOf(keyOf(c))
	w.mu.Lock()
	defer w.mu.Unlock()
	if state != agentbus.TurnPending {
		w.broken = errors.Join(w.broken, fmt.Errorf("%s was called, and is %q", c.Lineage.Turn, state))
	}
	if at := c.Lineage.Depth; at <= w.above || w.deepest > 0 && at > w.deepest {
		w.broken = errors.Join(w.broken, fmt.Errorf("%s was called at depth %d", c.Lineage.Turn, at))
	}
}

// stateOf returns that of a turn in any execution; "" when there is none.
func (r *recorder) stateOf(key agentbus.TurnKey) agentbus.TurnState {
	for _, e := range r.Executions() {
		for t := range r.Turns(context.Background(), e.ID) { //nolint:errcheck // a journal in memory does not fail
			if t.Run == key.Run && t.ID == key.ID && t.Path == key.Path && t.Parent == key.Parent {
				return t.State
			}
		}
	}
	return ""
}

// saying is what takes the chunks of an answer.
type saying func(agentbus.Chunk, error) bool

// How many ways there are to answer: those behind calmWays are not calm.
const calmWays, allWays = 14, 20

func (w *whims) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		w.allowed(c)
		r, ways := w.random(c), allWays
		if w.calm {
			ways = calmWays
		}
		for range r.IntN(3) {
			if !yield(agentbus.Chunk{Text: "lost", Usage: usage(r)}, nil) || !yield(agentbus.Chunk{Void: true}, nil) {
				return
			}
		}
		switch way := r.IntN(ways); way {
		case 0:
			yield(agentbus.Chunk{Text: "par", Usage: usage(r)}, nil)
			yield(agentbus.Chunk{}, &agentbus.Error{
				Code: agentbus.CodeRateLimited, Message: "slow \xff down", RetryAfter: time.Second, Status: 429, Explain: &agentbus.Explain{Rule: "G1", Observed: 12, Limit: 1.5},
			})
		case 1:
			yield(agentbus.Chunk{Text: " "}, nil)
		case 2:
			w.end(nil)
		case 3:
			yield(agentbus.Chunk{ToolCall: &agentbus.ToolCall{ID: "1", Name: "f\xfe", Arguments: "{}"}, Replayed: true, Finish: "tool"}, nil)
		case 4:
			yield(agentbus.Chunk{Text: "late", Usage: usage(r)}, nil)
			runtime.Gosched()
			yield(agentbus.Chunk{Text: "r"}, ctx.Err())
		case 14, 15, 16:
			asksAway(c.Resolution, r, yield)
		case 17, 18, 19:
			w.upsets(way, r, yield)
		default:
			yield(agentbus.Chunk{Text: phrases[r.IntN(len(phrases))], Reasoning: "why", Usage: usage(r), Model: "m"}, nil)
		}
	}
}

func usage(r *rand.Rand) *agentbus.Usage {
	return &agentbus.Usage{InputTokens: 3, Cost: agentbus.Micros(r.IntN(7) - 1)}
}

const secretWord = "correct-horse-battery"

var (
	phrases = []string{
		"yes", "no <&>", "\xffbroken\u2028", "STOP", "say it again", "what says @bob?", "you, @ann.", "it is " + secretWord, "next: bob", "next: d d",
	}
	questions = []*agentbus.Ask{
		payment,
		{Kind: agentbus.AskApproval, Prompt: "may I \xff?"},
		{Kind: agentbus.AskClarification, Title: "what is it?", Timeout: time.Minute},
		{Kind: agentbus.AskAuth, Title: "sign in"},
		{Title: "no kind \xfe"},
	}
	stopped = &agentbus.Error{Code: agentbus.CodeRunStopped, Message: "this run was stopped by its operator"}
	// causes end a drive from outside.
	causes = []error{
		nil, conversation.ErrLeave, stopped,
		&agentbus.Error{Code: agentbus.CodeLeaseLost, Message: "somebody else drives it"}, &agentbus.Error{Code: agentbus.CodeDraining, Message: "the process ends"},
	}
)

// asksAway asks, and mostly goes on with what was decided.
func asksAway(decided *agentbus.Resolution, r *rand.Rand, yield saying) {
	if decided != nil && r.IntN(3) > 0 {
		yield(agentbus.Chunk{Text: "so " + string(decided.Decision) + decided.Text, Usage: usage(r)}, nil)
		return
	}
	ask := *questions[r.IntN(len(questions))]
	e := &agentbus.Error{Code: agentbus.CodeInputRequired, Message: "it asks\xff", Ask: &ask}
	if ask.Policy != nil {
		e.Code = agentbus.CodePaymentRequired
	}
	_ = yield(agentbus.Chunk{Text: "but", Usage: usage(r)}, nil) && yield(agentbus.Chunk{}, e)
}

// upsets decides with some confidence, ends the drive, fails as a call of a run that
// was stopped, or says more than is told at once.
func (w *whims) upsets(way int, r *rand.Rand, yield saying) {
	switch {
	case way == 17:
		says := fmt.Sprintf("so\n"+`{"decision":{"n":%d},"next":"bob","confidence":%d.%d}`, r.IntN(2), r.IntN(2), r.IntN(10))
		yield(agentbus.Chunk{Text: says, Usage: usage(r)}, nil)
	case way == 18:
		w.end(causes[r.IntN(len(causes))])
		yield(agentbus.Chunk{Text: "still"}, nil)
	case r.IntN(4) == 0:
		yield(agentbus.Chunk{}, stopped)
	default:
		yield(agentbus.Chunk{Text: strings.Repeat("long ", 2000), Reasoning: "thus", Usage: usage(r)}, nil)
	}
}
