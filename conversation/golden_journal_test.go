package conversation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// journaled tells what a journal has of a run, in the form of
// testdata/reference.json.
func journaled(m *recorder, run agentbus.RunID) (lines []string) {
	rec := m.record(agentbus.ExecutionID(run))
	for _, t := range rec.Turns {
		line := fmt.Sprintf("%s %s %s attempts=%d", t.ID, t.Speaker, t.Reply.Text, t.Attempts)
		if t.State != agentbus.TurnDone {
			line = string(t.State) + " " + line
		}
		lines = append(lines, line)
	}
	if h := rec.Execution.Halt; h != nil {
		lines = append(lines, fmt.Sprintf("halt %s %d", h.Kind, h.Turns))
	}
	return lines
}

// R14, R15: what the reference's journal holds after a crash and after the run
// was resumed. Ours differs on purpose in one thing: it holds the intent of the
// turn that comes next, so that the turn, which may have been tried, is counted
// as tried again.
func TestGoldenJournalRecords(t *testing.T) {
	t.Parallel()
	ref := readReference(t)
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("a1", "a2"), "b", a.says("b1"))
	o := conversation.Options{Run: "run", Seed: "SEED", Owner: "one"}
	o.Journal = &crashing{recorder: m, at: 4} // Begin, two Finish, and then no more
	o.Runs = m
	if _, err := ran(t.Context(), c, o); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(ref.AfterCrash, "pending run.t2.a a  attempts=1"), journaled(m, "run")); diff != "" {
		t.Errorf("after the crash (-want +got)\n%s", diff)
	}
	o.Journal = m
	if _, err := ran(t.Context(), talk(3, "a", a.says("a2"), "b", a.says("b1")), o); err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.Replace(strings.Join(ref.AfterResume, "|"), "a2 attempts=1", "a2 attempts=2", 1), "|")
	if diff := cmp.Diff(want, journaled(m, "run")); diff != "" {
		t.Errorf("resumed (-want +got)\n%s", diff)
	}
}

// R14: a run whose journal has begun it and knows no turn yet goes on from the
// start, as the reference's with an empty prior journal.
func TestGoldenEmptyPrior(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(3, "a", a.says("a1", "a2"), "b", a.says("b1"))
	o := conversation.Options{Run: "run", Seed: "SEED", Owner: "one", Runs: m}
	o.Journal = &crashing{recorder: m, at: 1, after: true}
	if _, err := ran(t.Context(), c, o); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	names := map[string]string{
		conversation.EventResumed: "conversation_resumed", conversation.EventTurnStarted: "turn_start", conversation.EventDelta: "turn_text_delta",
		conversation.EventTurnDone: "turn_end", conversation.EventHalted: "conversation_end",
	}
	o.Journal = m
	var got []string
	if _, _, err := trace(t.Context(), c, o, func(e conversation.Event) { got = append(got, names[e.Type]) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(readReference(t).EmptyPrior, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// R17: what the reference's journal refuses with an error of its own is refused
// here by the fence of the lease: who writes to a run that is unknown, or over,
// does not hold it. A run id that is taken is no error but the run, resumed (R15).
func TestGoldenJournalErrors(t *testing.T) {
	t.Parallel()
	var a agents
	m := newRecorder()
	c := talk(1, "a", a.says("x"), "b", a.says("y"))
	o := conversation.Options{Run: "z", Journal: m, Runs: m}
	if _, err := ran(t.Context(), c, o); err != nil {
		t.Fatal(err)
	}
	turn := m.record("z").Turns[0]
	unknown := turn
	unknown.Execution = "nope"
	ours := map[string]func() error{
		"memAppendUnknown": func() error { return m.Finish(t.Context(), unknown, nil) },
		"memHaltUnknown": func() error {
			return m.Halt(t.Context(), agentbus.Lease{Execution: "nope", Epoch: 1}, agentbus.Halt{Kind: agentbus.HaltDone})
		},
		"memAppendHalted": func() error { return m.Finish(t.Context(), turn, nil) },
	}
	for name := range readReference(t).JournalErrors {
		refuse, known := ours[name]
		if name == "memBeginMismatch" {
			if again, err := ran(t.Context(), c, o); err != nil || len(again.Turns) != 1 || len(a.calls) != 1 {
				t.Errorf("%s: %+v, %v", name, again, err)
			}
			continue
		}
		if !known {
			t.Errorf("%s is not compared", name)
			continue
		}
		if err := refuse(); agentbus.CodeOf(err) != agentbus.CodeLeaseLost {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// R14, R15: the tails of the reference's journal files. Ours is no file of lines,
// so that there are no torn ones; what they stand for is said at each.
func TestGoldenTails(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(1, "a", a.says("x"), "b", a.says("y"))
	o := conversation.Options{Run: "q", Owner: "one"}
	drives := func(m *recorder, j conversation.Journal) error {
		o := o
		o.Journal, o.Runs = j, m
		r, err := ran(t.Context(), c, o)
		if err == nil && len(r.Turns) != 1 {
			return fmt.Errorf("%d turns", len(r.Turns))
		}
		return err
	}
	goesOn := func(after bool) func() error { // a write that was cut is there, or it is not
		return func() error {
			m := newRecorder()
			if err := drives(m, &crashing{recorder: m, at: 1, after: after}); !errors.Is(err, errCrash) {
				return err
			}
			return drives(m, m)
		}
	}
	ours := map[string]func() error{
		"torn tail": goesOn(false), "complete line without newline": goesOn(true), "blank lines": goesOn(false),
		"corrupt middle": func() error { // nobody is called for what cannot be read
			before, m := len(a.calls), newRecorder()
			if err := drives(m, unreadable{m, errCrash}); !errors.Is(err, errCrash) || len(a.calls) != before {
				return fmt.Errorf("%d calls, %w", len(a.calls)-before, err)
			}
			return nil
		},
		"turn before begin": func() error { // an execution comes before its turns
			_, err := newRecorder().Begin(t.Context(), []agentbus.Turn{{Execution: "q", Epoch: 1}})
			if agentbus.CodeOf(err) == agentbus.CodeLeaseLost {
				return nil
			}
			return fmt.Errorf("got %w", err)
		},
		"second begin resets turns": func() error { // it does not: they are acknowledged
			m := newRecorder()
			return errors.Join(drives(m, m), drives(m, m))
		},
		"empty file": func() error { m := newRecorder(); return drives(m, m) }, // a run that is unknown is begun
	}
	for _, tail := range readReference(t).Tails {
		check, known := ours[tail.Name]
		if !known {
			t.Errorf("%s is not compared", tail.Name)
			continue
		}
		if err := check(); err != nil {
			t.Errorf("%s: %v", tail.Name, err)
		}
	}
}
