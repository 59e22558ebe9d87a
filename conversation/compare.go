package conversation

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/agentbus/agentbus"
)

// A fact is one thing that a record and its replay must agree in.
type fact struct{ name, recorded, replayed string }

// differing returns the first of facts that differs, or "".
func differing(facts ...fact) (name, recorded, replayed string) {
	for _, f := range facts {
		if f.recorded != f.replayed {
			return f.name, strconv.Quote(f.recorded), strconv.Quote(f.replayed)
		}
	}
	return "", "", ""
}

// intents compares what was to be asked.
func intents(was, is *agentbus.Turn, paths bool) (name, recorded, replayed string) {
	if !paths {
		is = &agentbus.Turn{TurnKey: is.TurnKey, Execution: is.Execution, Index: is.Index, Speaker: is.Speaker, Digest: is.Digest}
		is.Path = was.Path
	}
	return differing(
		fact{"speaker", string(was.Speaker), string(is.Speaker)},
		fact{"agent", was.Agent, is.Agent},
		fact{"turn", string(was.ID), string(is.ID)},
		fact{"run", string(was.Run), string(is.Run)},
		fact{"parent", string(was.Parent), string(is.Parent)},
		fact{"path", was.Path, is.Path},
		fact{"payer", string(was.Payer), string(is.Payer)},
		fact{"messages", was.Digest.String(), is.Digest.String()},
	)
}

// results compares what came of a turn.
func results(was, is *agentbus.Turn) (name, recorded, replayed string) {
	return differing(
		fact{"state", string(was.State), string(is.State)},
		fact{"text", was.Reply.Text, is.Reply.Text},
		fact{"reply", text(was.Reply), text(is.Reply)},
		fact{"error", text(was.Error), text(is.Error)},
		fact{"attempts", strconv.Itoa(was.Attempts), strconv.Itoa(is.Attempts)},
		fact{"cost_micros", text(was.Cost), text(is.Cost)},
	)
}

func text(v any) string {
	raw, _ := json.Marshal(v) // what a store has written cannot fail
	return string(raw)
}

// unlike compares events: all but the clock's time and what the store numbers.
func unlike(was, is *agentbus.Event) (name, recorded, replayed string) {
	if was.Type == is.Type && was.Turn == is.Turn && !bytes.Equal(timeless(was), timeless(is)) {
		return datum(was, is)
	}
	return differing(
		fact{"event", was.Type, is.Type},
		fact{"event of", string(was.Turn), string(is.Turn)},
		fact{"execution of the event", string(was.Execution), string(is.Execution)},
		fact{"run of the event", string(was.Run), string(is.Run)},
		fact{"node of the event", was.Node, is.Node},
		fact{"cause of the event", string(was.Cause), string(is.Cause)},
	)
}

// What only a clock can tell, in the data of an event.
var (
	clocked = regexp.MustCompile(`"ts":\d+`)
	lasted  = regexp.MustCompile(`,?"durationMs":\d+`) // that of a run which is cancelled at once is left out
	written = regexp.MustCompile(`"writtenAt":"[^"]*"`)
	overran = regexp.MustCompile(`"(limit|observed)":[\d.e+]+`)
)

// timeless returns the data of an event without what only a clock can tell, as this
// version writes it.
func timeless(e *agentbus.Event) []byte {
	data := clocked.ReplaceAll(e.Data, []byte(`"ts":0`))
	if bytes.Contains(data, []byte(`"durationMs":`)) { // a pattern that may begin with two things is slow to find nothing in a long answer
		data = lasted.ReplaceAll(data, nil)
	}
	data = written.ReplaceAll(data, []byte(`"writtenAt":""`))
	if e.Type == agentbus.EventJoined { // in older records its turns stand with their run
		run, _ := json.Marshal(e.Run) // a string
		return bytes.ReplaceAll(data, append(run[:len(run)-1], '.'), []byte(`"`))
	}
	if e.Type == agentbus.EventCapBreached && bytes.Contains(data, []byte("run-duration")) {
		return overran.ReplaceAll(data, []byte(`"$1":0`))
	}
	return data
}

// datum names the first field in which the data of two events differ.
func datum(was, is *agentbus.Event) (name, recorded, replayed string) {
	if key, x, y := member(timeless(was), timeless(is)); key != "" {
		return key + " of the event", orNothing(x), orNothing(y)
	}
	return "data of the event", orNothing(was.Data), orNothing(is.Data)
}

// member names the first member in which two objects differ, the inner one where
// both are the bus's own.
func member(was, is json.RawMessage) (key string, x, y json.RawMessage) {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(is, &b) != nil {
		return "", nil, nil
	}
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		if bytes.Equal(a[key], b[key]) {
			continue
		}
		if key == "agentbus" || key == "halt" {
			if inner, x, y := member(a[key], b[key]); inner != "" {
				return inner, x, y
			}
		}
		return key, a[key], b[key]
	}
	return "", nil, nil
}

func orNothing(raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	return string(raw)
}

// written compares events with those that come next in the record. Those that
// are held back stand before the next that is not.
func (h *rehearsal) written(events []agentbus.Event) bool {
	for i := range events {
		if events[i].Hold > 0 {
			h.held = append(h.held, events[i])
			continue
		}
		if !h.flush(len(h.held)) || !h.compare(events[i]) {
			return false
		}
	}
	return true
}

// flush compares the first events that are held back.
func (h *rehearsal) flush(n int) bool {
	slices.SortStableFunc(h.held, func(a, b agentbus.Event) int { return a.Hold - b.Hold })
	for range n {
		e := h.held[0]
		h.held = h.held[1:]
		if !h.compare(e) {
			return false
		}
	}
	return true
}

// release compares what is held back at the end of a drive, as far as the record
// goes.
func (h *rehearsal) release() {
	for h.pass(); h.next < h.end && len(h.held) > 0; h.pass() {
		if !h.flush(1) {
			return
		}
	}
}

// compare compares an event with the one that comes next in the record. What
// tells of an answer as it came is taken as it is recorded.
func (h *rehearsal) compare(e agentbus.Event) bool {
	if live(e.Type) {
		return true
	}
	if h.pass(); h.next >= h.end {
		return h.divergeAt(h.next, e.Turn, "event", "none", describe(&e))
	}
	want := &h.record.Events[h.next]
	if e.CauseBack > 0 {
		e.Cause, e.CauseBack = h.record.Events[max(0, h.next-e.CauseBack)].ID, 0
	}
	if field, was, is := unlike(want, &e); field != "" {
		return h.divergeAt(h.next, want.Turn, field, was, is)
	}
	h.events = append(h.events, *want)
	h.next++
	return true
}

// pass takes the events that come next of answers as they came.
func (h *rehearsal) pass() {
	for ; h.next < h.end && live(h.record.Events[h.next].Type); h.next++ {
		h.events = append(h.events, h.record.Events[h.next])
	}
}

// describe tells an event in one line.
func describe(e *agentbus.Event) string {
	s := e.Type
	if e.Turn != "" {
		s += " of " + string(e.Turn)
	}
	return s
}

// made returns the turns that were made again, by index.
func (h *rehearsal) made() map[int]agentbus.Turn {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	made := map[int]agentbus.Turn{}
	for _, t := range h.runs[h.record.Execution.ID].turns {
		if t.State != "" { // turns side by side are begun in any order
			made[t.Index] = t
		}
	}
	return made
}

// compareTurns compares the turns as they stand at the end.
func (h *rehearsal) compareTurns() {
	if h.diverged != nil {
		return
	}
	made := h.made()
	for _, i := range slices.Sorted(maps.Keys(h.turns)) {
		is, known := made[i]
		if !known {
			h.diverge(i, "turn", string(h.turns[i].ID), "none")
			return
		}
		if h.turns[i].State == agentbus.TurnPending && (is.State == agentbus.TurnPending || is.State == agentbus.TurnWaiting) {
			continue // attempts and cost are those of the last result
		}
		if field, was, is := results(h.turns[i], &is); field != "" {
			h.diverge(i, field, was, is)
			return
		}
	}
}

// compareHalt compares how an execution that is not running was left.
func (h *rehearsal) compareHalt() {
	was, is := &h.record.Execution, &h.runs[h.record.Execution.ID].execution
	if h.diverged != nil || was.State != agentbus.RunPaused && was.State != agentbus.RunDone {
		return
	}
	field, recorded, replayed := differing(
		fact{"halt", text(was.Halt), text(is.Halt)},
		fact{"state", string(was.State), string(is.State)},
	)
	if field != "" {
		h.diverge(-1, field, recorded, replayed)
	}
}

// replayed returns what was made again, with the clock's share of the record.
func (h *rehearsal) replayed() Replayed {
	r := Replayed{Events: h.events, Divergence: h.diverged}
	made := h.made()
	for _, i := range slices.Sorted(maps.Keys(made)) {
		t := made[i]
		if was := h.turns[i]; was != nil && was.ID == t.ID {
			t.Began, t.Ended, t.Epoch = was.Began, was.Ended, was.Epoch
			if t.State == agentbus.TurnPending && was.State == agentbus.TurnPending {
				t.Attempts, t.Cost = was.Attempts, was.Cost
			}
		}
		r.Turns = append(r.Turns, t)
	}
	return r
}
