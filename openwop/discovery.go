package openwop

import (
	"net/http"
)

// discover serves GET /.well-known/openwop: what is true of this host, and
// nothing else (E4).
func (h *Host) discover(w http.ResponseWriter, _ *http.Request) {
	doc := map[string]any{
		"protocolVersion": "1.0", "implementation": map[string]any{"name": "agentbus", "version": h.cfg.Version},
		"supportedEnvelopes": []string{}, "schemaVersions": map[string]any{}, "supportedTransports": []string{"rest", "a2a"},
		"limits": map[string]any{
			"clarificationRounds": 3, "schemaRounds": 3, "envelopesPerTurn": 5,
			"maxNodeExecutions": maxNodeExecutions, "maxRunDurationMs": maxRunDurationMS,
		},
		"agents": h.agents(), "conversationPrimitive": true,
		"replay": map[string]any{"supported": true, "modes": []string{"replay", "branch"}},
	}
	if h.cfg.Conformance {
		doc["fixtures"] = fixtureIDs(h.cfg.workflows)
		doc["conformance"] = map[string]any{"mockAgent": true}
		doc["multiAgent"] = map[string]any{"executionModel": map[string]any{
			"supported": true, "version": 2, "confidenceEscalationFloor": confidenceFloor, "confidenceEscalationInterruptKind": "approval",
		}}
	}
	doc["capabilities"] = h.wrapped(doc)
	w.Header().Set("Cache-Control", "public, max-age=300")
	if err := answer(w, http.StatusOK, doc); err != nil {
		writeError(w, err)
	}
}

// wrapped are the families of doc where older clients look for them, below one
// member: agents have the flags there by which readers of RFC 0002 decide whether to
// wait for an event (E1). There is no memory.
func (h *Host) wrapped(doc map[string]any) map[string]any {
	agents := h.agents()
	for _, events := range []string{"reasoningEvents", "toolEvents", "handoffEvents", "decisionEvents"} {
		agents[events] = true
	}
	families := map[string]any{"agents": agents}
	for _, name := range []string{"limits", "conversationPrimitive", "replay", "multiAgent"} {
		if family, claimed := doc[name]; claimed {
			families[name] = family
		}
	}
	return families
}

// agents are what agents can do here. Conversations have moderators, and enclose
// what each agent does; to dispatch workers, and to hold them to the schemas of a
// manifest, are nodes of the conformance profile alone.
func (h *Host) agents() map[string]any {
	a := map[string]any{
		"supported": true, "modelClasses": []string{"reasoning", "tool-using", "chat"}, "orchestrator": true,
		"reasoning":   map[string]any{"verbosity": "summary", "tokenLimit": reasoningTokens, "streaming": true},
		"liveRuntime": map[string]any{"supported": true, "sources": []string{"workflow-node"}},
	}
	if h.cfg.Conformance {
		a["dispatch"], a["dispatchMapping"] = true, true
		a["manifestRuntime"] = map[string]any{"supported": true, "handoffValidation": true}
		a["liveRuntime"] = map[string]any{"supported": true, "sources": []string{"workflow-node", "run-api"}}
	}
	return a
}
