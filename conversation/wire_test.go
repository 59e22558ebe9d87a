package conversation_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/openwop"
)

// The schemas of the event wire stand beside the repository. Where they do not,
// only what they do not say is checked.
var schemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	files, _ := filepath.Glob("../../shared/schemas/openwop/*.schema.json")
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // none is a valid answer
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseRegexpEngine(func(s string) (jsonschema.Regexp, error) {
		const ahead = `(?!(?:openwop|core|community|vendor|private|local)\.)` // of the names of vendors; Go's has no look-ahead
		re, err := regexp.Compile(strings.Replace(s, ahead, "", 1))
		return vendorName{re, strings.Contains(s, ahead)}, err
	})
	ids := map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		of, _ := doc.(map[string]any)
		id, _ := of["$id"].(string)
		ids[filepath.Base(file)] = id
		if err := c.AddResource(id, doc); err != nil {
			return nil, err
		}
	}
	all := map[string]*jsonschema.Schema{}
	places := map[string]string{
		"": ids["run-event.schema.json"], "conversation.": ids["conversation-event.schema.json"],
		agentbus.EventWaitRequested: ids["suspend-request.schema.json"], agentbus.EventChannelWritten: ids["channel-written-payload.schema.json"],
	}
	for kind, def := range map[string]string{
		"run.started": "runStarted", "run.completed": "runCompleted", "run.failed": "runFailed", "run.cancelled": "runCancelled", "run.paused": "runPaused",
		"run.resumed": "runResumed", "node.started": "nodeStarted", "node.completed": "nodeCompleted", "node.failed": "nodeFailed", "node.retried": "nodeRetried",
		"node.cancelled": "nodeCancelled", "node.suspended": "nodeSuspended", "node.resumed": "nodeResumed", "interrupt.resolved": "interruptResolved",
		"provider.usage": "providerUsage", "output.chunk": "outputChunk", "cap.breached": "capBreached", "agent.reasoned": "agentReasoned",
		"agent.reasoning.delta": "agentReasoningDelta", "agent.toolCalled": "agentToolCalled", "agent.toolReturned": "agentToolReturned",
		"agent.handoff": "agentHandoff", "agent.invocation.started": "agentInvocationStarted", "agent.invocation.completed": "agentInvocationCompleted",
		"runOrchestrator.decided": "runOrchestratorDecided", "agent.decided": "agentDecided", "log.appended": "logAppended",
	} {
		places[kind] = ids["run-event-payloads.schema.json"] + "#/$defs/" + def
	}
	for kind, place := range places {
		s, err := c.Compile(place)
		if err != nil {
			return nil, err
		}
		all[kind] = s
	}
	return all, nil
})

// ownSchema is the schema that the product ships of what it emits (E1).
var ownSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openwop.EventSchema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("events", doc); err != nil {
		return nil, err
	}
	return c.Compile("events")
})

// A vendorName is a pattern that may refuse the prefixes of the wire itself.
type vendorName struct {
	*regexp.Regexp

	refuses bool
}

func (v vendorName) MatchString(s string) bool {
	scope, _, _ := strings.Cut(s, ".")
	return v.Regexp.MatchString(s) && (!v.refuses || !slices.Contains(strings.Fields("openwop core community vendor private local"), scope))
}

// wireFault returns what is wrong with the events of an execution, or nil: E1,
// E11, E24, E36, each of every run of the tests of this package; see ended too.
func wireFault(events []agentbus.Event) error {
	all, err := schemas()
	if err != nil {
		return err
	}
	ours, err := ownSchema()
	if err != nil {
		return err
	}
	byID := map[agentbus.EventID]*agentbus.Event{}
	for i := range events {
		e := &events[i]
		byID[e.ID] = e
		if e.Type == agentbus.EventAgentToolReturned {
			if err := paired(byID[e.Cause], e); err != nil {
				return err
			}
		}
		doc, _ := json.Marshal(eventlog.Document(e))
		if err := valid(ours, doc); err != nil {
			return fmt.Errorf("our own schema: %s: %w", doc, err)
		}
		if all == nil {
			continue
		}
		if err := valid(all[""], doc); err != nil {
			return fmt.Errorf("%s: %w", doc, err)
		}
		kind := e.Type
		if strings.HasPrefix(kind, "conversation.") {
			kind = "conversation."
		}
		if strings.HasPrefix(kind, "agentbus.") {
			continue
		}
		if all[kind] == nil {
			return fmt.Errorf("the schema of %s is not checked", e.Type)
		}
		if err := valid(all[kind], e.Data); err != nil {
			return fmt.Errorf("%s %s: %w", e.Type, e.Data, err)
		}
	}
	return nil
}

// paired tells that a tool's return names its call (E24).
func paired(call, returned *agentbus.Event) error {
	var was, is struct {
		CallID, ToolName, ToolID string
		Inputs, Arguments        json.RawMessage
	}
	if call == nil || call.Type != agentbus.EventAgentToolCalled || json.Unmarshal(call.Data, &was) != nil || json.Unmarshal(returned.Data, &is) != nil {
		return fmt.Errorf("%s has no call: cause %q", returned.ID, returned.Cause)
	}
	if was.CallID != is.CallID || was.ToolName != is.ToolName || was.ToolName != was.ToolID || !bytes.Equal(was.Inputs, was.Arguments) { // E1
		return fmt.Errorf("%s is no answer to %s", returned.Data, call.Data)
	}
	return nil
}

func valid(s *jsonschema.Schema, raw []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// ended tells that the events of a run stand one behind the other, from its start to
// its one terminal event if it is over, and that it has none otherwise (E9, E10, I6).
func ended(rec conversation.Record) error {
	last := len(rec.Events) - 1
	for i := range rec.Events {
		switch e := &rec.Events[i]; {
		case int(e.Position) != i:
			return fmt.Errorf("event %d stands at %d", e.Position, i)
		case (i == 0) != (e.Type == agentbus.EventRunStarted):
			return fmt.Errorf("event %d is %s", i, e.Type)
		case agentbus.Terminal(e.Type) && i < last:
			return fmt.Errorf("%s stands at %d of %d", e.Type, i, last)
		case i == last && agentbus.Terminal(e.Type) != (rec.Execution.State == agentbus.RunDone):
			return fmt.Errorf("the run is %s, and its last event %s", rec.Execution.State, e.Type)
		}
	}
	return nil
}

// bracketed returns which event of a turn's node, or of what its agent does, begins or
// ends what is not there, or what a run that halts leaves open (E57).
func bracketed(rec conversation.Record, older bool) error {
	nodes, calls := map[agentbus.TurnID]bool{}, map[agentbus.TurnID]bool{}
	for i := range rec.Events {
		e := &rec.Events[i]
		switch e.Type {
		case agentbus.EventNodeStarted, agentbus.EventNodeResumed:
			nodes[e.Turn], calls[e.Turn] = true, false
		case agentbus.EventInvocationStarted:
			calls[e.Turn] = true
		case agentbus.EventInvocationCompleted:
			if !calls[e.Turn] {
				return fmt.Errorf("%d: nobody is called in %s that could end", i, e.Turn)
			}
			calls[e.Turn] = false
		case agentbus.EventNodeCompleted, agentbus.EventNodeFailed, agentbus.EventNodeCancelled, agentbus.EventNodeSuspended:
			if e.Turn != "" && !nodes[e.Turn] && !withdrawn(e) {
				return fmt.Errorf("%d: %s of %s, which is not begun", i, e.Type, e.Turn)
			}
			nodes[e.Turn] = false
		}
		if e.Type != agentbus.EventRunPaused && !agentbus.Terminal(e.Type) || older {
			continue
		}
		for t := range nodes {
			if t != "" && (nodes[t] || calls[t]) {
				return fmt.Errorf("%d: the run halts, and %s is not ended", i, t)
			}
		}
	}
	return nil
}

// withdrawn reports whether e cancels a turn that waited, since its join was met.
func withdrawn(e *agentbus.Event) bool {
	return e.Type == agentbus.EventNodeCancelled && bytes.Contains(e.Data, []byte(`"agentbus":`))
}
