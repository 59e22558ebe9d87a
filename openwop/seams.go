package openwop

import (
	"encoding/json"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// seams are the routes that the public scenarios look through (E73). Without the
// conformance profile they do not exist.
func (h *Host) seams(route func(pattern string, f handler)) {
	const at = "/v1/host/sample/"
	route("GET "+at+"test/runs/{id}/events", h.seamEvents)
	route("POST "+at+"test/reset", func(w http.ResponseWriter, _ *http.Request, _ agentbus.Principal) error {
		return answer(w, http.StatusOK, map[string]any{"reset": true})
	})
	route("POST "+at+"agents/live-invoke", h.liveInvoke)
	route("POST "+at+"toolhooks/invoke", h.toolHook)
}

func (h *Host) seamEvents(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	docs := []eventlog.Doc{}
	if id := r.PathValue("id"); id != "__probe__" {
		e, err := h.find(r, p, id)
		if err != nil {
			return err
		}
		q := r.URL.Query()
		for ev, err := range h.cfg.Store.Events(r.Context(), e.ID, -1) {
			if err != nil {
				return err
			}
			d := eventlog.Document(&ev)
			if (!q.Has("type") || q.Get("type") == d.Type) && (!q.Has("causationId") || q.Get("causationId") == string(d.CausationID)) &&
				(!q.Has("nodeId") || q.Get("nodeId") == d.NodeID) {
				docs = append(docs, d)
			}
		}
	}
	return answer(w, http.StatusOK, map[string]any{"events": docs})
}

// liveInvoke calls an agent live, and answers when it has ended (E26).
func (h *Host) liveInvoke(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	in := map[string]json.RawMessage{}
	if err := h.body(r, &in); err != nil {
		return err
	}
	inputs, _ := oneLine(in) // of JSON
	id := agentbus.ExecutionID(agentbus.NewRunID())
	s := spec{Workflow: liveWorkflow, Asked: asked{Inputs: h.cfg.Redact().JSON(inputs)}}
	if err := h.begin(r.Context(), id, s, agentbus.Payer(p.ID)); err != nil {
		return err
	}
	ctx, cancel := h.while(r)
	defer cancel()
	out := map[string]any{"runId": id}
	for e, err := range h.follow(ctx, id) { //nolint:contextcheck // it is the request's, until the host closes
		if err != nil {
			return err
		}
		if e.Type == agentbus.EventInvocationCompleted {
			c, _ := payload[agentbus.InvocationCompleted](&e)
			out["invocationId"], out["outcome"], out["schemaValidated"] = c.InvocationID, c.Outcome, c.SchemaValidated
		}
		if e.Type == agentbus.EventRunFailed {
			f, _ := payload[agentbus.RunFailed](&e)
			return invalid("%s", f.Error.Message)
		}
	}
	return answer(w, http.StatusOK, out)
}

// toolHook decides on one call of a tool, and answers with the two payloads that
// it would make. What cannot be decided is denied (E27).
func (h *Host) toolHook(w http.ResponseWriter, r *http.Request, _ agentbus.Principal) error {
	var req struct {
		Principal string          `json:"principal"`
		ToolName  string          `json:"toolName"`
		Scopes    []string        `json:"requiredScopes"`
		Args      json.RawMessage `json:"args"`
		Exhausted bool            `json:"simulateRateLimitExhausted"`
	}
	if err := h.body(r, &req); err != nil {
		return err
	}
	if req.Principal == "" || req.ToolName == "" {
		return invalid("principal and toolName are wanted")
	}
	args := h.cfg.Redact().JSON(req.Args)
	call := agentbus.NewToolCalled(agentbus.SystemAgent, req.ToolName, "call_hook_0", args)
	call.ArgsHash, call.Principal, call.Transport = rawjson.CanonicalHash(args), h.cfg.Redact().Text(req.Principal), "native"
	returned := agentbus.NewToolReturned(&call, json.RawMessage(`{}`), nil, 0)
	status := http.StatusOK
	switch {
	case len(req.Scopes) > 0: // who has which scope is not known here
		why := &agentbus.EventError{Code: "forbidden", Message: "the principal has not the scopes of this tool"}
		returned, status = agentbus.NewToolDenied(&call, why.Code, why), http.StatusForbidden
	case req.Exhausted:
		why := &agentbus.EventError{Code: "rate_limited", Message: "too many calls of this tool", Retryable: true}
		returned, status = agentbus.NewToolDenied(&call, why.Code, why), http.StatusTooManyRequests
		w.Header().Set("Retry-After", "1")
	}
	return answer(w, status, map[string]any{"toolCalled": call, "toolReturned": returned})
}
