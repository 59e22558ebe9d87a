package openwop

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/agentbus/agentbus"
)

// The node types (E71).
const (
	typeNoop       = "core.noop"
	typeIdentity   = "core.identity"
	typeDelay      = "core.delay"
	typeFail       = "core.fail"
	typeClarify    = "core.clarificationGate"
	typeApprove    = "core.approvalGate"
	typeConverse   = "core.conversationGate"
	typeSupervisor = "core.orchestrator.supervisor"
	typeDispatch   = "core.dispatch"
	typeMockAgent  = "core.conformance.mock-agent"
	typeLiveAgent  = "core.conformance.live-agent"
)

// performer returns what performs the nodes of a type, and returns their outputs;
// nil: there is no such type.
func performer(typeID string) func(*activation) (json.RawMessage, error) {
	switch typeID {
	case typeNoop:
		return noop
	case typeIdentity:
		return identity
	case typeDelay:
		return delay
	case typeFail:
		return failing
	case typeClarify:
		return clarify
	case typeApprove:
		return approve
	case typeConverse:
		return converse
	case typeSupervisor:
		return supervise
	case typeDispatch:
		return dispatch
	case typeMockAgent:
		return mockAgentNode
	case typeLiveAgent:
		return live
	}
	return nil
}

// hostAgent is the agent of a node that none is pinned to (E71); nil: it has none.
func hostAgent(n *Node) *agentbus.AgentRef {
	var kind string
	switch n.TypeID {
	case typeSupervisor:
		kind = "supervisor"
	case typeMockAgent:
		kind = "mock-agent"
	case typeLiveAgent:
		kind = "live-agent"
	default:
		return nil
	}
	return &agentbus.AgentRef{AgentID: "host:" + kind + ":" + n.ID}
}

func itoa(n int) string { return strconv.Itoa(n) }

// noop does nothing, once what its workflow demands of its inputs is met (E72).
func noop(a *activation) (json.RawMessage, error) {
	if a.wf.Metadata.RequiresAgent != structuredFixture {
		return nil, nil
	}
	var text, scenario string
	var fields []string
	a.variable("text", &text)
	a.variable("scenario", &scenario)
	a.variable("extractionFields", &fields)
	switch {
	case text == "" || fields == nil:
		return nil, fail("handoff_task_schema_violation", "the task has no text, or no extractionFields")
	case scenario == "mock-return-violation":
		return nil, fail("handoff_return_schema_violation", "what the agent returned is neither a result nor an error")
	}
	return nil, nil
}

// identity gives its inputs on as variables.
func identity(a *activation) (json.RawMessage, error) {
	var c struct {
		EmitDuplicateMessageID bool                       `json:"emitDuplicateMessageId"`
		Set                    map[string]json.RawMessage `json:"set"`
	}
	if err := a.config(&c); err != nil {
		return nil, err
	}
	if c.EmitDuplicateMessageID {
		for i, id := range []string{"m1", "m1", "m2"} {
			a.write("messages", agentbus.ConversationTurn{
				MessageID: id, From: agentbus.SystemAgent, Content: "message " + itoa(i), TS: time.Now().UnixMilli(), Role: "system", TurnIndex: i,
			})
		}
	}
	out := map[string]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(a.fold.inputs)) {
		out[name] = a.fold.inputs[name]
		a.emit(agentbus.EventVariableChanged, nil, agentbus.VariableChanged{Name: name, Next: out[name], NodeID: a.node.ID})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Set)) {
		out[name] = c.Set[name]
		a.emit(agentbus.EventVariableChanged, nil, agentbus.VariableChanged{Name: name, Next: out[name], NodeID: a.node.ID})
	}
	return oneLine(out)
}

// write writes a message to a channel, once by its id (E47).
func (a *activation) write(channel string, turn agentbus.ConversationTurn) {
	value, _ := oneLine(turn) // strings and numbers
	a.emit(agentbus.EventChannelWritten, nil, agentbus.ChannelWritten{
		Channel: channel, Value: value, Reducer: agentbus.ReducerMessage, NodeID: a.node.ID, WrittenAt: time.Now().UTC(),
	})
}

// delay waits for delayMs, of its configuration or an input of that name.
func delay(a *activation) (json.RawMessage, error) {
	var c struct {
		DelayMS int64 `json:"delayMs"`
	}
	if err := a.config(&c); err != nil {
		return nil, err
	}
	a.variable("delayMs", &c.DelayMS)
	if c.DelayMS < 0 || c.DelayMS > maxRunDurationMS {
		return nil, fail("invalid_config", "delayMs is not between 0 and %d", maxRunDurationMS)
	}
	return nil, a.sleep(time.Duration(c.DelayMS) * time.Millisecond)
}

func failing(*activation) (json.RawMessage, error) {
	return nil, fail("conformance_failure", "this node fails, as it was told to")
}

// A questionData is one question of a clarification (E36).
type questionData struct {
	ID       string `json:"id"`
	Question string `json:"question"`
}

type clarification struct {
	Questions []questionData `json:"questions"`
}

// clarify asks questions, and gives the answers on.
func clarify(a *activation) (json.RawMessage, error) {
	var c clarification
	if err := a.config(&c); err != nil {
		return nil, err
	}
	if len(c.Questions) == 0 {
		return nil, fail("invalid_config", "node %s has no questions", a.node.ID)
	}
	answer, err := a.wait(question{
		kind: "clarification", reason: "clarification", data: c,
		ask: agentbus.Ask{Kind: agentbus.AskClarification, Prompt: c.Questions[0].Question},
	})
	if err != nil {
		return nil, err
	}
	answers := answersOf(answer)
	if answers == nil {
		return nil, fail("interrupt_denied", "nobody answered")
	}
	return oneLine(map[string]any{"answers": answers})
}

// answersOf reads answers as a map, or as an array of ids and answers (E37); nil:
// there are none.
func answersOf(v json.RawMessage) map[string]json.RawMessage {
	var byID struct {
		Answers map[string]json.RawMessage `json:"answers"`
	}
	if json.Unmarshal(v, &byID) == nil && byID.Answers != nil {
		return byID.Answers
	}
	var list []struct {
		ID     string          `json:"id"`
		Answer json.RawMessage `json:"answer"`
	}
	var held struct {
		Answers json.RawMessage `json:"answers"`
	}
	if json.Unmarshal(v, &held) == nil && held.Answers != nil {
		v = held.Answers
	}
	if json.Unmarshal(v, &list) != nil || len(list) == 0 {
		return nil
	}
	out := map[string]json.RawMessage{}
	for _, l := range list {
		out[l.ID] = l.Answer
	}
	return out
}

// An approvalData is what is to be approved (E36).
type approvalData struct {
	ArtifactID   string   `json:"artifactId"`
	ArtifactType string   `json:"artifactType"`
	Title        string   `json:"title"`
	Actions      []string `json:"actions"`
	ArtifactData any      `json:"artifactData,omitempty"`
}

// actionSchema is what an answer of an approval satisfies.
func actionSchema(actions []string) string {
	out, _ := oneLine(map[string]any{ // strings
		"type": "object", "required": []string{"action"},
		"properties": map[string]any{"action": map[string]any{"enum": actions}},
	})
	return string(out)
}

// approve asks for an approval. What is rejected fails.
func approve(a *activation) (json.RawMessage, error) {
	var c struct {
		Title   string   `json:"title"`
		Actions []string `json:"actions"`
	}
	if err := a.config(&c); err != nil {
		return nil, err
	}
	action, err := a.askApproval(c.Title, "approval-gate", nil, c.Actions)
	if err != nil {
		return nil, err
	}
	return oneLine(map[string]string{"action": action})
}

// askApproval asks for an approval and returns the action.
func (a *activation) askApproval(title, artifact string, data any, actions []string) (action string, err error) {
	answer, err := a.wait(question{
		kind: "approval", reason: "approval", schema: actionSchema(actions),
		data: approvalData{ArtifactID: a.node.ID + ":" + itoa(a.asked), ArtifactType: artifact, Title: title, Actions: actions, ArtifactData: data},
		ask:  agentbus.Ask{Kind: agentbus.AskApproval, Title: title, Choices: actions},
	})
	if err != nil {
		return "", err
	}
	var got struct {
		Action string `json:"action"`
	}
	_ = json.Unmarshal(answer, &got)
	if got.Action == "reject" || got.Action == "" {
		return "", fail("decision_rejected", "it was rejected")
	}
	return got.Action, nil
}
