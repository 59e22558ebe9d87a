package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/server"
)

// A shower tells a conversation as it happens.
type shower interface {
	event(e *conversation.Event)
	result(r *conversation.Result)
	note(text string) // of our own
}

// shower returns who tells a conversation: a live tree on a terminal, a line an
// event elsewhere, nobody under --json. stop must be called when it is over.
func (a *app) shower(ctx context.Context, s *server.Server, st server.Start) (sh shower, stop func()) {
	if a.JSON {
		return silent{}, func() {}
	}
	l := a.live()
	if l == nil {
		return &show{app: a, paint: a.colours(a.stdout)}, func() {}
	}
	l.limit = capOf(ctx, s, st)
	l.calls = func() (mine []agentbus.CallRecord) {
		for _, c := range s.Live() {
			if c.Run == st.Run {
				mine = append(mine, c)
			}
		}
		return mine
	}
	return l, l.turning()
}

// live returns who draws a run on the terminal; nil where nothing can be drawn.
func (a *app) live() *live {
	width, _, ok := a.size(a.stdout)
	if a.JSON || !ok || width < narrowest {
		return nil
	}
	return &live{
		paint: a.colours(a.stdout), now: time.Now,
		screen: screen{out: a.stdout, size: func() (int, int) {
			if w, h, ok := a.size(a.stdout); ok {
				return w, h
			}
			return width, narrowest
		}},
	}
}

// narrowest is the terminal below which nothing is drawn.
const narrowest = 20

// capOf is what a run may cost; nil: there is no cap of its own.
func capOf(ctx context.Context, s *server.Server, st server.Start) *agentbus.Micros {
	if st.Budget != nil {
		return st.Budget
	}
	e := agentbus.Execution{Conversation: st.Conversation}
	if st.Resume {
		e, _, _ = s.Store().Execution(ctx, agentbus.ExecutionID(st.Run)) // one that cannot be read is drawn without
	}
	return limited(s.CapOf(e))
}

// limited is a cap as it is drawn: 0 is none.
func limited(m agentbus.Micros) *agentbus.Micros {
	if m == 0 {
		return nil
	}
	return &m
}

// silent tells nothing.
type silent struct{}

func (silent) event(*conversation.Event) {}

func (silent) result(*conversation.Result) {}

func (silent) note(string) {}

// follow tells a conversation to its end. That it goes on is told once it does:
// behind it, what is over already has nothing but its result.
func follow(events iter.Seq2[conversation.Event, error], s shower) (*conversation.Result, error) {
	var resumed *conversation.Event
	for e, err := range events {
		if resumed != nil {
			resumed.Result = e.Result
			s.event(resumed)
			resumed = nil
		}
		if err != nil {
			return nil, err
		}
		if e.Type == conversation.EventResumed {
			resumed = &e
			continue
		}
		if e.Result != nil {
			s.result(e.Result)
			return e.Result, nil
		}
		s.event(&e)
	}
	return nil, errors.New("the conversation ended without a result")
}

// standing says of a run that was resumed whether it goes on.
func standing(e *conversation.Event) string {
	how := " goes on after "
	if e.Result != nil {
		how = " stands as it stood after "
	}
	return "run " + string(e.Run) + how + plural(len(e.Turns), "turn")
}

// A show tells a conversation where nothing can be drawn: a line an event.
type show struct {
	*app

	paint paint
}

func (s *show) result(r *conversation.Result) { s.printf("%s\n", s.paint.dim(summary(r))) }

func (s *show) note(text string) {
	fmt.Fprintf(s.stderr, "\n%s\n", text) //nolint:errcheck // nobody is left to tell
}

func (s *show) event(e *conversation.Event) {
	switch e.Type {
	case conversation.EventStarted:
		s.printf("%s\n", s.paint.dim("run "+string(e.Run)))
	case conversation.EventResumed:
		s.printf("%s\n", s.paint.dim(standing(e)))
		for i := range e.Turns {
			if e.Turns[i].State == agentbus.TurnDone {
				s.turn(&e.Turns[i])
			}
		}
	case conversation.EventRetry:
		s.printf("%s\n", s.paint.dim(fmt.Sprintf("%s failed, and is tried again: ×%d", named(e.Turn), e.Turn.Attempts)))
	case conversation.EventToolCall:
		s.printf("%s\n", s.paint.dim("tool "+harmless(e.Chunk.ToolCall.Name)))
	case conversation.EventTurnDone:
		s.turn(e.Turn)
	case conversation.EventTurnFailed:
		s.printf("%s\n", s.paint.red(named(e.Turn)+" failed"))
	case conversation.EventInterruptRequested:
		s.printf("%s\n", s.paint.bold(named(e.Turn)+" asks: "+harmless(e.Turn.Error.Ask.Title)))
	case conversation.EventTurnCancelled:
		s.printf("%s\n", s.paint.dim(named(e.Turn)+" cancelled: it was not needed any more"))
	}
}

func (s *show) turn(t *agentbus.Turn) {
	s.printf("%s %s\n", s.paint.bold(named(t)), harmless(t.Reply.Text))
}

func (s *show) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(s.stdout, format, args...); err != nil && !hungUp(err) { // the run goes on all the same
		s.lost = err
	}
}

func summary(r *conversation.Result) string {
	var u agentbus.Usage
	done := 0
	for i := range r.Turns {
		u = u.Add(r.Turns[i].Reply.Usage)
		if r.Turns[i].State == agentbus.TurnDone {
			done++
		}
	}
	return summed(r.Run, &r.Halt, done, u, r.Spent)
}

// summed is what a run came to, in a line.
func summed(run agentbus.RunID, h *agentbus.Halt, turns int, u agentbus.Usage, spent agentbus.Micros) string {
	return fmt.Sprintf("%s · %s · tokens %d in, %d out · $%s · agentbus trace %s", harmless(h.String()), plural(turns, "turn"), u.InputTokens, u.OutputTokens, spent.USD(), operand(run))
}

// resultJSON is a result as --json prints it.
func resultJSON(r *conversation.Result) any {
	turns := r.Turns
	if turns == nil {
		turns = []agentbus.Turn{}
	}
	return struct {
		Run       agentbus.RunID       `json:"run"`
		Execution agentbus.ExecutionID `json:"execution"`
		Halt      agentbus.Halt        `json:"halt"`
		Turns     []agentbus.Turn      `json:"turns"`
		Reply     string               `json:"reply"`
		Cost      agentbus.Micros      `json:"cost_micros"`
	}{r.Run, r.Execution, r.Halt, turns, r.Reply, r.Spent}
}
