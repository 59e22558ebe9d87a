package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/faults"
	"github.com/agentbus/agentbus/server"
)

// drivers are conversations whose drivers are killed, with agents a, b and c, one
// that never answers, and the conversation inner as the agent board.
var drivers = map[string]string{
	"alternate": "participants: [{agent: a}, {agent: b}], max_turns: 3",
	"fan-out":   "participants: [{agent: a}, {agent: b}, {agent: c}], plan: fan-out, synthesizer: c",
	"nested":    "participants: [{agent: c}, {agent: board}], max_turns: 2",
	"any":       "participants: [{agent: never}, {agent: a}, {agent: c}], plan: fan-out, join: any, synthesizer: c",
	"quorum":    `participants: [{agent: a}, {agent: never}, {agent: b}], plan: fan-out, join: "quorum:2"`,
}

// A driver that is killed with -9 at any point of its turns, each time the point
// is passed, leaves a run that another process brings to the end that it would
// have had: the same transcript, the same events, in the conversations nested in
// it too, and each agent behind the gateway was called once a turn (R14, R15,
// R20, G20).
func TestDriverKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	driverKilledAtEveryPoint(t, drivers, next, func(t *testing.T, text string) *cutDriver {
		t.Helper()
		return &cutDriver{path: configure(t, text), died: func() {}}
	})
}

// The same, where the store is a PostgreSQL, for two of the conversations, killed
// the first time each point is passed; AGENTBUS_SOAK: all of them, each time.
func TestDriverKilledAtEveryPointOnPostgres(t *testing.T) { // R14, R15, R19
	t.Parallel()
	if testing.Short() {
		t.Skip("a volume test")
	}
	some, then := map[string]string{"fan-out": drivers["fan-out"], "nested": drivers["nested"]}, func(faults.Point, int) int { return 0 }
	if os.Getenv("AGENTBUS_SOAK") != "" {
		some, then = drivers, next
	}
	driverKilledAtEveryPoint(t, some, then, func(t *testing.T, text string) *cutDriver {
		t.Helper()
		url := stores.Database(t)
		return &cutDriver{path: configureOn(t, url, text), died: func() {
			inDatabase(t, url, "DELETE FROM owners; UPDATE executions SET expires = 0 WHERE state = 'running'") // as if the time had passed after which leases end
		}}
	})
}

// driverKilledAtEveryPoint kills drivers of conversations, on stores that on
// makes. then says when to kill again after the n-th time; 0: not again.
func driverKilledAtEveryPoint(t *testing.T, conversations map[string]string, then func(faults.Point, int) int, on func(t *testing.T, text string) *cutDriver) {
	t.Helper()
	program := faulty(t)
	for name, def := range conversations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			undisturbed := newCutDriver(t, program, def, on)
			if died := undisturbed.run(""); died {
				t.Fatal("it was killed")
			}
			want := undisturbed.account()
			for _, point := range faults.DriverPoints() {
				t.Run(string(point), func(t *testing.T) {
					t.Parallel()
					kills, d := 0, newCutDriver(t, program, def, on)
					for n := 1; n > 0 && d.run(string(point)+":"+strconv.Itoa(n)); n = then(point, n) {
						kills++
						d.died()
						d.resume()
						if diff := cmp.Diff(want, d.account()); diff != "" {
							t.Errorf("killed at %s, the %d. time (-undisturbed +resumed)\n%s", point, n, diff)
						}
					}
					t.Logf("%d kills", kills)
					if kills == 0 {
						t.Error("it was never passed")
					}
				})
			}
		})
	}
}

// next returns when to kill after the n-th time: in the middle of answers there
// are many times, and not all are tried.
func next(point faults.Point, n int) int {
	if point == faults.SpeakAmid {
		return n + 7
	}
	return n + 1
}

// A cutDriver is a store whose runs are driven by processes that may be killed, and
// the agents they call through a gateway that is not.
type cutDriver struct {
	t       *testing.T
	program string
	path    string // of the drivers' configuration
	died    func() // lets those who share the store know that a driver died
	store   server.Store
	agents  map[string]*agent
	last    agentbus.RunID
}

func newCutDriver(t *testing.T, program, def string, on func(t *testing.T, text string) *cutDriver) *cutDriver {
	t.Helper()
	agents := map[string]*agent{}
	var behind, before strings.Builder
	for _, name := range []string{"a", "b", "c"} {
		agents[name] = newAgent(t, name, 0)
		fmt.Fprintf(&behind, "  %s: {kind: openai, url: %q, price: {call: 0.001}}\n", name, agents[name].URL+"/v1")
	}
	never := newGated(t, "never", make(chan struct{}), make(chan agentbus.TurnID, 1<<10)) // a join is met without it
	// Detached, its calls would outlive the drivers, and the gateway would wait for them as it drains (G14, G31).
	fmt.Fprintf(&behind, "  never: {kind: openai, url: %q, detach: off}\n", never.URL+"/v1")
	gateway := serving(t, configure(t, "keys: [{id: alice, secret_env: ALICE}]\nagents:\n"+behind.String()), aliceEnv)
	for name := range agents {
		fmt.Fprintf(&before, "  %s: {kind: openai, url: %q, model: %s, api_key_env: ALICE, price: {call: 0.001}}\n", name, gateway.url+"/v1", name)
	}
	fmt.Fprintf(&before, "  never: {kind: openai, url: %q, model: never, api_key_env: ALICE}\n", gateway.url+"/v1")
	d := on(t, "agents:\n"+before.String()+"  board: {kind: conversation, conversation: inner}\n"+
		"conversations:\n  inner: {participants: [{agent: a}, {agent: b}], max_turns: 2}\n  talk: {"+def+"}\n")
	d.t, d.program, d.agents, d.store = t, program, agents, opened(t, d.path, aliceEnv)
	return d
}

// run begins a run, and reports whether its driver was killed.
func (d *cutDriver) run(fault string) (died bool) {
	d.t.Helper()
	before := d.last
	died = d.drive(fault, "run", "talk", "go")
	runs, err := d.store.RunSummaries(d.t.Context(), agentbus.RunFilter{}, 1, "")
	if err != nil || len(runs) == 0 || runs[0].Run == before {
		d.t.Fatalf("no run was begun: %v, %v", runs, err)
	}
	d.last = runs[0].Run
	return died
}

// resume brings the last run to its end. It may be there already.
func (d *cutDriver) resume() {
	d.t.Helper()
	d.drive("", "resume", string(d.last))
}

func (d *cutDriver) drive(fault string, args ...string) (died bool) {
	d.t.Helper()
	p := launch(d.t, d.program, filepath.Dir(d.path), []string{"ALICE=" + aliceKey, "AGENTBUS_FAULT=" + fault}, append(args, "--config", d.path)...)
	p.rest()
	code := p.end()
	if code > 0 {
		d.t.Fatalf("%v ended with %d: %s", args, code, p.stderr.String())
	}
	return code == -1
}

// varies is what may differ in the data of events: how often a turn was tried, how
// long it took, and that an answer came from the memory of the gateway.
var varies = regexp.MustCompile(`"attempts":\d+,|,"replayed":true|"durationMs":\d+,`)

// account tells all that there is to be told of the last run, but for what its
// killing adds: that it was resumed, and the order of the branches.
func (d *cutDriver) account() (lines []string) {
	d.t.Helper()
	all, err := d.store.Executions(d.t.Context(), d.last)
	if err != nil {
		d.t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b agentbus.Execution) int { return strings.Compare(b.Conversation, a.Conversation) })
	for i := range all {
		lines = append(lines, fmt.Sprintf("%s is %s after %d turns, halt %v, cost %d", all[i].Conversation, all[i].State, all[i].Turns, all[i].Halt, all[i].Cost))
		for turn, err := range d.store.Turns(d.t.Context(), all[i].ID) {
			if err != nil {
				d.t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s [%s] %s: %s %d", strings.TrimPrefix(string(turn.ID), string(d.last)), turn.Speaker, turn.State, turn.Reply.Text, turn.Cost))
			if a := d.agents[turn.Agent]; a != nil && len(a.executions(turn.ID)) != 1 {
				d.t.Errorf("%s was executed %d times", turn.ID, len(a.executions(turn.ID)))
			}
		}
		lines = append(lines, d.events(all[i].ID)...)
	}
	return lines
}

// events are those of an execution. What stands between two events of no branch is
// sorted.
func (d *cutDriver) events(id agentbus.ExecutionID) (lines []string) {
	d.t.Helper()
	begun := 0
	for e, err := range d.store.Events(d.t.Context(), id, -1) {
		if err != nil {
			d.t.Fatal(err)
		}
		switch e.Type {
		case agentbus.EventNodeCompleted, agentbus.EventNodeFailed, agentbus.EventNodeCancelled, agentbus.EventJoined, agentbus.EventRunCompleted:
		default: // what was killed has begun more than once
			continue
		}
		if e.Type == agentbus.EventJoined {
			slices.Sort(lines[begun:])
		}
		data := varies.ReplaceAll(bytes.ReplaceAll(e.Data, []byte(d.last), nil), nil)
		lines = append(lines, fmt.Sprintf("%s %s %s", e.Type, strings.TrimPrefix(string(e.Turn), string(d.last)), data))
		if e.Turn == "" {
			begun = len(lines)
		}
	}
	return lines
}
