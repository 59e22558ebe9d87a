package openwop

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/agentbus/agentbus"
)

// structuredFixture is the agent whose hand-over schemas the fixture of that name
// demands (E72).
const structuredFixture = "core.openwop.agent-examples.structured-fixture"

// liveWorkflow is what the seam live-invoke runs: it is no fixture, and nobody can
// ask for it.
const liveWorkflow = conformancePrefix + "live-invoke"

func (w *Workflow) with(f func(*Workflow)) *Workflow { f(w); return w }

// fixture makes a workflow of nodes in a row.
func fixture(name string, nodes ...Node) *Workflow {
	w := &Workflow{
		ID: conformancePrefix + name, Name: "Conformance: " + name, Version: "1.0.0", Nodes: nodes, Edges: []Edge{},
		Triggers: []Trigger{{ID: "manual", Type: "manual"}}, Variables: []Variable{},
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		n.Name, n.Position = n.ID, Place{X: 200 * i}
		if n.Config == nil {
			n.Config = json.RawMessage("{}")
		}
		if i > 0 {
			w.Edges = append(w.Edges, Edge{ID: "e" + itoa(i), Source: w.Nodes[i-1].ID, Target: n.ID})
		}
	}
	return w
}

func node(id, kind, config string, agent ...agentbus.AgentRef) Node {
	n := Node{ID: id, TypeID: kind}
	if config != "" {
		n.Config = json.RawMessage(config)
	}
	if len(agent) > 0 {
		n.Agent = &agent[0]
	}
	return n
}

// cc is an agent of the conformance profile.
func cc(name string, class agentbus.ModelClass) agentbus.AgentRef {
	return agentbus.AgentRef{AgentID: "core.conformance." + name, ModelClass: class}
}

// loop makes a supervisor and a dispatch that lead to each other.
func loop(name, supervisorID, agent, config, dispatchConfig string) *Workflow {
	sup := node(supervisorID, typeSupervisor, config)
	if agent != "" {
		ref := cc(agent, agentbus.ModelReasoning)
		sup.Agent = &ref
	}
	w := fixture(name, sup, node("dispatch", typeDispatch, dispatchConfig))
	w.Edges = append(w.Edges, Edge{ID: "back", Source: "dispatch", Target: supervisorID})
	return w
}

// variables declares variables.
func variables(names ...string) func(*Workflow) {
	return func(w *Workflow) {
		for _, n := range names {
			w.Variables = append(w.Variables, Variable{Name: n, Type: "object"})
		}
	}
}

// channelOf declares a channel of messages.
func channelOf(name string) func(*Workflow) {
	return func(w *Workflow) { w.Channels = map[string]Channel{name: {Reducer: "message"}} }
}

// fixtures are the workflows of E72's table.
func fixtures() map[string]*Workflow {
	all := slices.Concat(plainFixtures(), agentFixtures(), orchestratorFixtures(), conversationFixtures())
	out := map[string]*Workflow{}
	for _, w := range all {
		out[w.ID] = w
	}
	return out
}

func plainFixtures() []*Workflow {
	var six []Node
	for i := range 6 {
		six = append(six, node("n"+itoa(i+1), typeNoop, ""))
	}
	return []*Workflow{
		fixture("noop", node("noop", typeNoop, "")),
		fixture("idempotent", node("noop", typeNoop, "")).with(variables("nonce")),
		fixture("identity", node("echo", typeIdentity, "")).with(variables("payload")),
		fixture("multi-node", node("a", typeNoop, ""), node("b", typeNoop, ""), node("c", typeNoop, "")),
		fixture("cap-breach", six...),
		fixture("delay", node("wait", typeDelay, `{"delayMs":1000}`)),
		fixture("cancellable", node("wait", typeDelay, `{"delayMs":30000}`)),
		fixture("run-duration-breach", node("wait", typeDelay, `{"delayMs":30000}`)),
		fixture("failure", node("fail", typeFail, "")),
		fixture("clarification", node("ask", typeClarify, `{"questions":[{"id":"q1","question":"What is your favorite color?"}]}`)),
		fixture("approval", node("gate", typeApprove, `{"title":"Conformance approval","actions":["accept","reject"]}`)),
		fixture("message-reducer", node("emit-duplicate-message", typeIdentity, `{"emitDuplicateMessageId":true}`)).with(channelOf("messages")),
	}
}

func agentFixtures() []*Workflow {
	installed := cc("pack-installed-agent", agentbus.ModelChat)
	installed.SourceManifestID = "core.conformance.agent-pack.installed-agent"
	return []*Workflow{
		fixture("agent-reasoning", node("reasoner", typeMockAgent, `{"mockReasoning":{"summary":"The input is small, so echoing it is enough."},
			"mockToolCalls":[{"toolId":"openwop.echo:echo","arguments":{"x":1},"result":{"x":1},"durationMs":1}],
			"mockHandoff":{"toAgentId":"core.conformance.handoff-target","reason":"demo-handoff"},
			"mockDecision":{"decision":{"next":"done"},"confidence":1}}`, cc("reasoning-agent", agentbus.ModelReasoning))),
		fixture("agent-reasoning-streaming", node("streaming-reasoner", typeMockAgent, `{"mockReasoning":{"summary":"","streamChunks":[
			"Let me think about this. ","First, the user is asking a question. ","Therefore, I should respond clearly."]}}`,
			cc("streaming-reasoner", agentbus.ModelReasoning))),
		fixture("agent-low-confidence", node("low-conf-decider", typeMockAgent, `{"mockDecision":{"decision":{"kind":"stub-low-conf"},"confidence":0.5}}`,
			cc("low-conf-decider", agentbus.ModelReasoning))),
		fixture("agent-identity", node("echo", typeIdentity, "", cc("identity-agent", agentbus.ModelChat))),
		fixture("agent-pack-provenance", node("pack-installed-node", typeIdentity, "", installed)),
		fixture("agent-pack-handoff-schema-validation", node("noop", typeNoop, "")).with(func(w *Workflow) { w.Metadata.RequiresAgent = structuredFixture }),
		fixture("live-invoke", node("live", typeLiveAgent, "")),
	}
}

func orchestratorFixtures() []*Workflow {
	const next = `{"kind":"next-worker","nextWorkerIds":["conformance-noop"]}`
	const child = `{"kind":"next-worker","nextWorkerIds":["conformance-multi-agent-handoff-child"]`
	return []*Workflow{
		loop("orchestrator-low-confidence", "supervisor", "low-conf-supervisor", `{"mockConfidence":0.5,"mockPendingDecision":`+next+`}`, ""),
		loop("orchestrator-terminate", "supervisor", "terminate-supervisor", `{"mockDecisions":[{"kind":"terminate","reason":"goal-reached"}]}`, ""),
		loop("orchestrator-dispatch", "supervisor", "supervisor", `{"mockDecisions":[`+next+`,{"kind":"terminate"}]}`, ""),
		loop("dispatch-loop", "orchestrator", "", "", ""),
		loop("multi-agent-handoff", "supervisor", "supervisor", `{"mockDispatchPlan":[`+child+`},{"kind":"terminate"}]}`, `{"outputMapping":{"parentResult":"childOutcome"}}`),
		fixture("multi-agent-handoff-child", node("child", typeIdentity, `{"set":{"childOutcome":"handoff-complete"}}`)),
		loop("multi-agent-confidence-escalation", "supervisor", "supervisor", `{"mockDispatchPlan":[`+child+`,"confidence":0.3}]}`, ""),
	}
}

func conversationFixtures() []*Workflow {
	return []*Workflow{
		fixture("conversation-lifecycle", node("convo", typeConverse, `{"turnCount":1,"mockAutoResume":true}`)).with(channelOf("conversation")),
		fixture("conversation-replay", node("convo", typeConverse, `{"turnCount":3,"mockAutoResume":true}`)).with(channelOf("conversation")),
		fixture("conversation-vs-clarification", node("convo", typeConverse, `{"turnCount":1,"mockAutoResume":true}`)),
	}
}

// fixtureIDs are those that discovery names (E4).
func fixtureIDs(all map[string]*Workflow) []string {
	ids := slices.Sorted(maps.Keys(all))
	return slices.DeleteFunc(ids, func(id string) bool { return id == liveWorkflow })
}
