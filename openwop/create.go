package openwop

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
)

// A createRequest asks for a run (E5). What else it has is ignored.
type createRequest struct {
	WorkflowID   string          `json:"workflowId"`
	Inputs       json.RawMessage `json:"inputs"`
	Configurable json.RawMessage `json:"configurable"`
	Tags         []string        `json:"tags"`
	Metadata     json.RawMessage `json:"metadata"`
	CallbackURL  json.RawMessage `json:"callbackUrl"`
}

// The bounds of what comes with a run (E5).
const (
	maxTags     = 100
	maxTag      = 256
	maxMetadata = 50 << 10
	maxRunKey   = 256
	keyLife     = 24 * time.Hour
)

// create serves POST /v1/runs.
func (h *Host) create(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	var raw json.RawMessage
	if err := h.body(r, &raw); err != nil {
		return err
	}
	var req createRequest
	if len(raw) == 0 || json.Unmarshal(raw, &req) != nil {
		return invalid("the body is no JSON object, or a member of it has a wrong type")
	}
	if err := h.check(&req); err != nil {
		return err
	}
	id, repeated, err := h.mint(r, p, raw)
	if err != nil {
		return err
	}
	if err := h.startOnce(r, p, id, &req); err != nil {
		if !repeated {
			h.unclaim(r, p, id, err)
		}
		return err
	}
	status := http.StatusCreated
	if repeated {
		w.Header().Set("Openwop-Idempotent-Replay", "true")
		status = http.StatusOK
	}
	e, found, err := h.cfg.Store.Execution(r.Context(), id)
	if err == nil && !found {
		err = fmt.Errorf("run %s was begun and is not in the store", id)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/runs/"+string(id))
	return answer(w, status, map[string]any{
		"runId": id, "status": h.standing(r.Context(), &e), "workflowId": req.WorkflowID,
		"eventsUrl": "/v1/runs/" + string(id) + "/events", "statusUrl": "/v1/runs/" + string(id), "startedAt": e.Began.UTC(),
	})
}

// check refuses what cannot be run (E5, E7).
func (h *Host) check(req *createRequest) error {
	switch {
	case req.WorkflowID == "":
		return invalid("workflowId is missing")
	case len(req.CallbackURL) > 0 && string(req.CallbackURL) != "null":
		return invalid("callbackUrl is not supported: follow the events")
	case len(req.Tags) > maxTags:
		return invalid("there are more than %d tags", maxTags)
	case len(req.Metadata) > maxMetadata:
		return invalid("metadata has more than %d bytes", maxMetadata)
	case !object(req.Metadata):
		return invalid("metadata is no object")
	case !object(req.Inputs):
		return invalid("inputs is no object")
	}
	for _, t := range req.Tags {
		if t == "" || utf8.RuneCountInString(t) > maxTag {
			return invalid("a tag has 1 to %d characters", maxTag)
		}
	}
	if err := checkConfigurable(req.Configurable, h.cfg.Conformance); err != nil {
		return err
	}
	own := h.cfg.workflow(req.WorkflowID)
	if own != nil && req.WorkflowID != liveWorkflow || own == nil && h.conversation(req.WorkflowID) != nil {
		return nil
	}
	return notFound("workflow_not_found", "there is no workflow %.100q", req.WorkflowID)
}

func (h *Host) conversation(name string) *Workflow {
	if h.cfg.Conversations == nil {
		return nil
	}
	return h.cfg.Conversations.Workflow(name)
}

// object reports whether raw is absent or an object.
func object(raw json.RawMessage) bool {
	var v map[string]json.RawMessage
	return len(raw) == 0 || json.Unmarshal(raw, &v) == nil
}

// checkConfigurable refuses options of a run that have a wrong type or are out of
// bounds; others are kept as they came (E7).
func checkConfigurable(raw json.RawMessage, mock bool) error {
	if len(raw) == 0 {
		return nil
	}
	var c struct {
		configurable

		MockProvider json.RawMessage `json:"mockProvider"`
	}
	if json.Unmarshal(raw, &c) != nil || !object(raw) {
		return invalid("configurable has a member of a wrong type")
	}
	if err := once(raw); err != nil {
		return err
	}
	switch {
	case len(c.MockProvider) > 0 && !mock:
		return refuse(http.StatusForbidden, "mock_provider_forbidden", "mockProvider is for conformance only")
	case c.RecursionLimit != nil && *c.RecursionLimit < 1:
		return invalid("recursionLimit is less than 1")
	case c.RunTimeoutMS != nil && *c.RunTimeoutMS < 1:
		return invalid("runTimeoutMs is less than 1")
	case c.EscalationThreshold != nil && (math.IsNaN(*c.EscalationThreshold) || *c.EscalationThreshold < 0 || *c.EscalationThreshold > 1):
		return invalid("escalationThreshold is not between 0 and 1")
	}
	if err := c.checkModel(); err != nil {
		return err
	}
	switch c.ReasoningVerbosity {
	case "", "summary", "full", "off":
	default:
		return invalid("reasoningVerbosity is summary, full or off")
	}
	switch c.OnHalt {
	case "", "fail", "pause":
		return nil
	}
	return invalid("onHalt is fail or pause")
}

// The bounds of what a run overrides.
const (
	maxModel  = 256
	maxPrompt = 64 << 10 // all of them together
)

// checkModel refuses what no model can be asked with, and budgets that are none.
func (c *configurable) checkModel() error {
	size := 0
	for name, text := range c.Prompts {
		size += len(name) + len(text)
	}
	switch {
	case c.Model != nil && (*c.Model == "" || len(*c.Model) > maxModel || strings.ContainsFunc(*c.Model, func(r rune) bool { return r <= ' ' || r > '~' })):
		return invalid("model has 1 to %d letters of ASCII, and no spaces", maxModel)
	case c.MaxTokens != nil && (*c.MaxTokens < 1 || *c.MaxTokens > math.MaxInt32):
		return invalid("maxTokens is not between 1 and %d", math.MaxInt32)
	case c.Temperature != nil && (*c.Temperature < 0 || *c.Temperature > 2):
		return invalid("temperature is not between 0 and 2")
	case size > maxPrompt:
		return invalid("promptOverrides have more than %d bytes", maxPrompt)
	case c.Budget == nil:
		return nil
	case c.Budget.MaxTokens != nil && *c.Budget.MaxTokens < 1:
		return invalid("budget.maxTokens is less than 1")
	case c.Budget.MaxCostUSD != nil && (*c.Budget.MaxCostUSD < 0 || *c.Budget.MaxCostUSD > maxCostUSD):
		return invalid("budget.maxCostUsd is not between 0 and %d", maxCostUSD)
	}
	return nil
}

const maxCostUSD = 1_000_000_000

// mint makes the id of a run, or finds the one that was made for the same key
// (E6).
func (h *Host) mint(r *http.Request, p agentbus.Principal, raw json.RawMessage) (id agentbus.ExecutionID, repeated bool, err error) {
	id = agentbus.ExecutionID(agentbus.NewRunID())
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return id, false, nil
	}
	if len(key) > maxRunKey {
		return "", false, invalid("the Idempotency-Key has more than %d bytes", maxRunKey)
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return "", false, invalid("the body has no canonical form")
	}
	now := time.Now().UTC()
	k := agentbus.RunKey{Payer: agentbus.Payer(p.ID), Key: key, Digest: sha256.Sum256(canonical), Run: id, Expires: now.Add(keyLife)}
	known, claimed, err := h.cfg.Store.ClaimRunKey(r.Context(), k, now)
	if err == nil && known.Digest != k.Digest {
		err = refuse(http.StatusConflict, "idempotency_key_mismatch", "this key was used with another body")
	}
	return known.Run, !claimed, err
}

// unclaim lets a key go whose run was refused, so that what was wrong with it can be
// mended under the same key (E6). One that may still begin keeps it.
func (h *Host) unclaim(r *http.Request, p agentbus.Principal, id agentbus.ExecutionID, refused error) {
	key := r.Header.Get("Idempotency-Key")
	bad, ok := errors.AsType[*refusal](refused)
	invalid := ok && bad.status == http.StatusBadRequest || agentbus.CodeOf(refused) == agentbus.CodeInvalidRequest
	if key == "" || !invalid {
		return
	}
	// One that is not let go is refused with another body until it is old.
	_ = h.cfg.Store.FreeRunKey(context.WithoutCancel(r.Context()), agentbus.RunKey{Payer: agentbus.Payer(p.ID), Key: key, Run: id})
}

// startOnce begins the run for all twins that ask at once: they learn together
// whether it was refused (E6).
func (h *Host) startOnce(r *http.Request, p agentbus.Principal, id agentbus.ExecutionID, req *createRequest) error {
	_, err, _ := h.beginning.Do(string(id), func() (any, error) { return nil, h.start(r, p, id, req) })
	return err
}

// start begins the run. One that there is already is left as it is, so that twins
// make one.
func (h *Host) start(r *http.Request, p agentbus.Principal, id agentbus.ExecutionID, req *createRequest) error {
	redact := h.redactFor(r)
	clean := asked{
		Inputs: redact.JSON(req.Inputs), Configurable: redact.JSON(req.Configurable), Metadata: redact.JSON(req.Metadata), Tags: req.Tags,
	}
	for i := range clean.Tags {
		clean.Tags[i] = redact.Text(clean.Tags[i])
	}
	ctx := context.WithoutCancel(r.Context())
	if h.cfg.workflow(req.WorkflowID) != nil {
		return h.begin(ctx, id, spec{Workflow: req.WorkflowID, Asked: clean}, agentbus.Payer(p.ID))
	}
	st := conversationOf(id, req.WorkflowID, agentbus.NewCredential(r.Header.Get("Authorization")), &clean)
	st.Trace = traceOf(r.Header)
	var ok bool
	if st.Seed, ok = seedOf(req.Inputs); !ok {
		return invalid("inputs.seed is missing: it is what the conversation begins with, as a string or as parts with text")
	}
	return h.cfg.Conversations.Start(ctx, st)
}

// redactFor takes secrets out of what a request brings, that of its caller too (E28).
func (h *Host) redactFor(r *http.Request) *eventlog.Redactor {
	return h.cfg.Redact().With(eventlog.Secret{ID: "caller", Value: agentbus.NewCredential(r.Header.Get("Authorization"))})
}

// conversationOf is a conversation to be begun as it was asked for.
func conversationOf(id agentbus.ExecutionID, name string, auth agentbus.Credential, a *asked) Start {
	s := spec{Asked: *a}
	c := s.options()
	st := Start{
		Run: agentbus.RunID(id), Workflow: name, Auth: auth, OnHalt: cmp.Or(c.OnHalt, "fail"), Reasoning: c.ReasoningVerbosity, Threshold: c.EscalationThreshold,
		Started: agentbus.RunStarted{Transport: "rest", Configurable: a.Configurable, Metadata: a.Metadata, Tags: a.Tags},
	}
	st.Overrides, st.Budget = c.overrides(), c.cost()
	if c.RunTimeoutMS != nil {
		st.Timeout = time.Duration(c.timeoutMS()) * time.Millisecond
	}
	return st
}

// seedOf reads what a conversation begins with: a string, or parts whose texts are
// put together (E55).
func seedOf(inputs json.RawMessage) (seed string, ok bool) {
	var in struct {
		Seed json.RawMessage `json:"seed"`
	}
	_ = json.Unmarshal(inputs, &in) // it is an object
	if len(in.Seed) == 0 || string(in.Seed) == "null" {
		return "", false
	}
	if json.Unmarshal(in.Seed, &seed) == nil {
		return seed, true
	}
	var parts []struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(in.Seed, &parts) != nil || len(parts) == 0 {
		return "", false
	}
	var texts []string
	for _, p := range parts {
		if p.Text == nil {
			return "", false
		}
		texts = append(texts, *p.Text)
	}
	return strings.Join(texts, "\n\n"), true
}
