package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// liveOn is a live on a terminal of that size, ten seconds after it began.
func liveOn(width, height int, out io.Writer, calls ...agentbus.CallRecord) *live {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	limit := agentbus.Micros(500_000)
	return &live{
		screen: screen{out: out, size: func() (int, int) { return width, height }}, began: began, now: func() time.Time { return began.Add(10 * time.Second) },
		calls: func() []agentbus.CallRecord { return calls }, limit: &limit,
	}
}

func liveCall(turn, parent agentbus.TurnID, agent string, depth int, at time.Time) agentbus.CallRecord {
	return agentbus.CallRecord{TurnKey: agentbus.TurnKey{Run: "r", ID: turn, Parent: parent, Agent: agent}, Depth: depth, Began: at, State: agentbus.CallExecuting}
}

// The tree of what is going on, what is being said, and the sum: on a wide
// terminal, on a narrow one, on a low one.
func TestLiveTree(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 10, 0, time.UTC)
	calls := []agentbus.CallRecord{liveCall("r.t2.panel", "", "panel", 1, at), liveCall("r.t0.checker", "r.t2.panel", "checker", 2, at.Add(4*time.Second))}
	speaks := func(l *live) {
		l.event(&conversation.Event{Type: conversation.EventTurnDone, Turn: &agentbus.Turn{
			TurnKey: agentbus.TurnKey{ID: "r.t1.critic"}, Speaker: "critic", Began: at, Ended: at.Add(2 * time.Second), Attempts: 2, Cost: 1500,
			Reply: agentbus.Reply{Text: "no", Usage: agentbus.Usage{InputTokens: 120, OutputTokens: 7}},
		}})
		turn := &agentbus.Turn{TurnKey: agentbus.TurnKey{ID: "r.t2.panel"}, Speaker: "panel"}
		l.event(&conversation.Event{Type: conversation.EventTurnStarted, Turn: turn})
		l.event(&conversation.Event{Type: conversation.EventDelta, Turn: turn, Chunk: agentbus.Chunk{Text: "We \x1b[31mshould wait, 因为 there is no hurry at all."}})
	}
	for _, tt := range []struct {
		name          string
		width, height int
		want          []string
	}{
		{"wide", 80, 24, []string{
			"[panel] We \uFFFD[31mshould wait, 因为 there is no hurry at all.",
			"└─ ⠋ panel  t2.panel  depth 1  5.0s",
			"   └─ ⠋ checker  t0.checker  depth 2  1.0s",
			"⠋ 10.0s · 1 turn · tokens 120 in, 7 out · $0.001500 of $0.500000",
		}},
		{"narrow", 30, 24, []string{
			"[panel] We \uFFFD[31mshould",
			"wait, 因为 there is no hurry",
			"at all.",
			"└─ ⠋ panel  t2.panel  depth …",
			"   └─ ⠋ checker  t0.checker …",
			"⠋ 10.0s · 1 turn · tokens 12…",
		}},
		{"low", 80, 3, []string{
			"   └─ ⠋ checker  t0.checker  depth 2  1.0s",
			"⠋ 10.0s · 1 turn · tokens 120 in, 7 out · $0.001500 of $0.500000",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			l := liveOn(tt.width, tt.height, &out, calls...)
			speaks(l)
			var got []string
			for _, line := range l.region() {
				line, cells := clipped(line, tt.width-1)
				if cells >= tt.width || cells != widthOf(line) {
					t.Errorf("%q takes %d cells, it says %d", line, widthOf(line), cells)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(out.String(), "[critic] no\n  2.0s · tokens 120→7 · $0.001500 · ×2\n") || strings.Contains(out.String(), "\x1b[31m") {
				t.Errorf("drawn: %q", out.String())
			}
		})
	}
}

// What stands below is removed before anything is written, also on a terminal
// that has become narrower and broken its lines.
func TestScreen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	width := 20
	s := screen{out: &out, size: func() (int, int) { return width, 10 }}
	s.draw("", []string{strings.Repeat("x", 40), "y"})
	s.draw("said\n", []string{"z"})
	width = 5
	s.draw("", []string{"123456789"})
	s.draw("", nil)
	want := strings.Repeat("x", 18) + "…\ny\n" + "\x1b[2A\r\x1b[Jsaid\nz\n" + "\x1b[1A\r\x1b[J123…\n" + "\x1b[1A\r\x1b[J"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{"": 0, "abc": 3, "因为": 4, "e\u0301": 1, "\x1b[1mab\x1b[0m": 2, "🙂": 2} {
		if got := widthOf(line); got != want {
			t.Errorf("%q takes %d, want %d", line, got, want)
		}
	}
	for _, tt := range []struct {
		line string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"因为因", 5, "因为…"}, {"因为", 4, "因为"}, {"\x1b[1mabcd\x1b[0m", 3, "\x1b[1mab…\x1b[0m"}, {"abc", 1, "…"}, {"", 0, ""},
	} {
		if got, _ := clipped(tt.line, tt.most); got != tt.want {
			t.Errorf("%q to %d is %q, want %q", tt.line, tt.most, got, tt.want)
		}
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "fourfi", "ve", "", "因", "为"}, wrapped("one two three\nfourfive\n\n因为", 6)); diff == "" {
		t.Error("a wide character fits")
	}
	if diff := cmp.Diff([]string{"one", "two", "three", "fourf", "ive", "", "因为"}, wrapped("one two three\nfourfive\n\n因为", 5)); diff != "" {
		t.Errorf("wrapped (-want +got):\n%s", diff)
	}
}
