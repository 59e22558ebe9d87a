package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// A live shows a run on a terminal as it goes on. What is over stands above and
// scrolls away; the last lines are drawn again and again: the calls that are
// being made, as a tree, and what the run has come to.
type live struct {
	screen
	paint paint
	now   func() time.Time
	calls func() []agentbus.CallRecord // that are being made, of the run
	limit *agentbus.Micros             // nil: the run has no cap

	mu      sync.Mutex // guards what follows, and the screen
	began   time.Time  // of the run; zero: when it is drawn first
	frame   int
	turns   int
	retries int
	usage   agentbus.Usage
	spent   agentbus.Micros
	talks   []*speech // turns that are being spoken, in order
	over    bool      // nothing is drawn below any more
}

// A speech is a turn that is not over.
type speech struct {
	turn    agentbus.TurnID
	speaker agentbus.Speaker
	began   time.Time
	text    strings.Builder
}

const (
	redrawEvery = 100 * time.Millisecond
	mostShown   = 8 // lines of a turn while it is spoken
)

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// turning draws the last lines again every so often, until stop is called, which
// removes them.
func (l *live) turning() (stop func()) {
	l.mu.Lock()
	if l.began.IsZero() {
		l.began = l.now()
	}
	l.mu.Unlock()
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(redrawEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.mu.Lock()
				l.frame++
				l.draw("", l.region())
				l.mu.Unlock()
			case <-ending:
				return
			}
		}
	}()
	return func() {
		close(ending)
		<-ended
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
		l.draw("", nil)
	}
}

// note says something above the last lines.
func (l *live) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw(text+"\n", l.region())
}

// result says what the run came to.
func (l *live) result(r *conversation.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw(l.paint.dim(summary(r))+"\n", nil)
}

// event says what is over of an event, and draws the rest.
func (l *live) event(e *conversation.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw(l.take(e), l.region())
}

// take learns from an event, and returns what is said of it for good.
func (l *live) take(e *conversation.Event) string {
	switch e.Type {
	case conversation.EventStarted:
		return l.paint.dim("run "+string(e.Run)) + "\n"
	case conversation.EventResumed:
		var said strings.Builder
		said.WriteString(l.paint.dim(standing(e)) + "\n")
		for i := range e.Turns {
			if e.Turns[i].State == agentbus.TurnDone {
				said.WriteString(l.done(&e.Turns[i]))
			}
		}
		return said.String()
	case conversation.EventTurnStarted:
		l.ends(e.Turn.ID) // its driver was cut off, and another one begins it again
		began := e.Turn.Began
		if began.IsZero() {
			began = l.now()
		}
		l.talks = append(l.talks, &speech{turn: e.Turn.ID, speaker: e.Turn.Speaker, began: began})
	case conversation.EventDelta:
		if s := l.speech(e.Turn.ID); s != nil {
			s.text.WriteString(harmless(e.Chunk.Text))
		}
	case conversation.EventRetry:
		l.retries++
		if s := l.speech(e.Turn.ID); s != nil {
			s.text.Reset()
		}
		return l.paint.dim(fmt.Sprintf("%s failed, and is tried again: ×%d", named(e.Turn), e.Turn.Attempts)) + "\n"
	case conversation.EventToolCall:
		return l.paint.dim(named(e.Turn)+" tool "+harmless(e.Chunk.ToolCall.Name)) + "\n"
	case conversation.EventTurnDone:
		l.ends(e.Turn.ID)
		return l.done(e.Turn)
	case conversation.EventTurnFailed:
		l.ends(e.Turn.ID)
		l.spent += e.Turn.Cost
		return l.paint.red(named(e.Turn)+" failed") + "\n"
	case conversation.EventInterruptRequested:
		l.ends(e.Turn.ID)
		return l.paint.bold(named(e.Turn)+" asks: "+harmless(e.Turn.Error.Ask.Title)) + "\n"
	case conversation.EventTurnCancelled:
		l.ends(e.Turn.ID)
		return l.paint.dim(named(e.Turn)+" cancelled: it was not needed any more") + "\n"
	}
	return ""
}

func named(t *agentbus.Turn) string { return "[" + harmless(string(t.Speaker)) + "]" }

// done counts a turn and tells its words and what it took.
func (l *live) done(t *agentbus.Turn) string {
	l.turns++
	l.usage = l.usage.Add(t.Reply.Usage)
	l.spent += t.Cost
	took := fmt.Sprintf("  %s · tokens %d→%d · $%s", short3(t.Ended.Sub(t.Began)), t.Reply.Usage.InputTokens, t.Reply.Usage.OutputTokens, t.Cost.USD())
	if t.Attempts > 1 {
		took += fmt.Sprintf(" · ×%d", t.Attempts)
	}
	return l.paint.bold(named(t)) + " " + harmless(t.Reply.Text) + "\n" + l.paint.dim(took) + "\n"
}

func (l *live) speech(id agentbus.TurnID) *speech {
	for _, s := range l.talks {
		if s.turn == id {
			return s
		}
	}
	return nil
}

func (l *live) ends(id agentbus.TurnID) {
	for i, s := range l.talks {
		if s.turn == id {
			l.talks = append(l.talks[:i], l.talks[i+1:]...)
			return
		}
	}
}

// region is what is drawn below everything: what is being said, the tree of the
// calls that are being made, and the sum.
func (l *live) region() (lines []string) {
	if l.over {
		return nil
	}
	width, height := l.size()
	if len(l.talks) == 1 {
		lines = l.speaking(l.talks[0], width)
	}
	calls := l.calls()
	byTurn := map[agentbus.TurnID]bool{}
	for i := range calls {
		byTurn[calls[i].TurnKey.ID] = true
	}
	spin := string(spinner[l.frame%len(spinner)])
	for _, s := range l.talks {
		if !byTurn[s.turn] { // between two attempts, or about to be called
			lines = append(lines, fmt.Sprintf("· %s %s %s", spin, harmless(string(s.speaker)), l.paint.dim(short3(l.now().Sub(s.began)))))
		}
	}
	l.tree(&lines, treeOf(calls), "", spin)
	lines = append(lines, l.status(spin))
	if most := max(height-1, 1); len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return lines
}

// speaking is the end of what a turn has said so far.
func (l *live) speaking(s *speech, width int) []string {
	if s.text.Len() == 0 {
		return nil
	}
	lines := wrapped("["+harmless(string(s.speaker))+"] "+s.text.String(), max(width-1, 1))
	return lines[max(len(lines)-mostShown, 0):]
}

func (l *live) tree(lines *[]string, nodes []*node, indent, spin string) {
	for i, n := range nodes {
		branch, below := "├─ ", "│  "
		if i == len(nodes)-1 {
			branch, below = "└─ ", "   "
		}
		*lines = append(*lines, fmt.Sprintf("%s%s%s %s  %s", indent, branch, spin, l.paint.bold(harmless(n.Agent)),
			l.paint.dim(fmt.Sprintf("%s  depth %d  %s", shortTurn(n.CallRecord), n.Depth, short3(l.now().Sub(n.Began))))))
		l.tree(lines, n.Calls, indent+below, spin)
	}
}

// status is what the run has come to.
func (l *live) status(spin string) string {
	money := "$" + l.spent.USD()
	if l.limit != nil {
		money += " of $" + l.limit.USD()
	}
	text := fmt.Sprintf("%s %s · %s · tokens %d in, %d out · %s", spin, short3(l.now().Sub(l.began)), plural(l.turns, "turn"), l.usage.InputTokens, l.usage.OutputTokens, money)
	if l.retries > 0 {
		text += " · " + plural(l.retries, "retry")
	}
	return text
}

// short3 is a time as somebody reads it who waits: tenths of a second, then
// whole ones.
func short3(d time.Duration) string {
	d = max(d, 0)
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// A screen draws the last lines of a terminal again.
type screen struct {
	out   io.Writer
	size  func() (width, height int)
	drawn []int // how wide each line is that stands below
}

// draw removes the last lines, writes text that stays, which ends with a line
// end, and then lines. They are cut to the width of the terminal, so that each
// is one line there.
func (s *screen) draw(text string, lines []string) {
	width, _ := s.size()
	var b strings.Builder
	rows := 0
	for _, w := range s.drawn { // a terminal that became narrower has broken them
		rows += max((w+width-1)/width, 1)
	}
	if rows > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", rows)
	}
	b.WriteString(text)
	s.drawn = s.drawn[:0]
	for _, line := range lines {
		line, cells := clipped(line, width-1)
		b.WriteString(line + "\n")
		s.drawn = append(s.drawn, cells)
	}
	io.WriteString(s.out, b.String()) //nolint:errcheck // who hung up sees no more, and the run goes on
}
