package openwop

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
)

// while is the context of a request that ends with the host too.
func (h *Host) while(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(h.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// resolveNode serves POST /v1/runs/{id}/interrupts/{node} (E37).
func (h *Host) resolveNode(w http.ResponseWriter, r *http.Request, p agentbus.Principal, e *agentbus.Execution) error {
	value, err := h.resumeBody(r)
	if err != nil {
		return err
	}
	return h.resolve(w, r, p, e, r.PathValue("node"), "", value)
}

// resumeBody reads {resumeValue}.
func (h *Host) resumeBody(r *http.Request) (json.RawMessage, error) {
	var req struct {
		ResumeValue json.RawMessage `json:"resumeValue"`
	}
	if err := h.body(r, &req); err != nil {
		return nil, err
	}
	if len(req.ResumeValue) == 0 {
		return nil, invalid("resumeValue is missing")
	}
	if len(req.ResumeValue) > maxResume {
		return nil, invalid("resumeValue has more than %d bytes", maxResume)
	}
	return req.ResumeValue, once(req.ResumeValue)
}

const maxResume = 64 << 10

// resolve decides the interrupt of a node that waits; key, unless "", is which
// one. One of those who try at once does.
func (h *Host) resolve(w http.ResponseWriter, r *http.Request, p agentbus.Principal, e *agentbus.Execution, node, key string, value json.RawMessage) error {
	f, err := h.fold(r.Context(), e)
	if err != nil {
		return err
	}
	open, waits := f.waiting(node, key)
	if !waits {
		if f.ever[node] {
			return errResolved
		}
		return notFound("interrupt_not_found", "node %.100q waits for nothing", node)
	}
	asked := f.questions[open.Key]
	if err := fitting(asked, value); err != nil {
		return err
	}
	if err := h.directing(e, f, &open, value); err != nil {
		return err
	}
	auth := agentbus.NewCredential(r.Header.Get("Authorization"))
	redact := h.redactFor(r)
	id, res := open.interrupt(e.ID), agentbus.Resolution{Decision: decisionOf(value), By: p.ID, At: time.Now().UTC()}
	if _, ours := readSpec(e); open.lacks() {
		err = h.credited(r, e, res.Decision, auth)
	} else if ours {
		res.Text = string(redact.JSON(value))
		_, err = h.cfg.Store.Resolve(r.Context(), id, res)
	} else if err = h.decides(&res, asked.Kind, value, redact); err == nil {
		err = h.cfg.Conversations.Resolve(r.Context(), id, res, auth)
	}
	switch agentbus.CodeOf(err) {
	case "":
	case agentbus.CodeRunConflict:
		return errResolved
	case agentbus.CodeNotFound:
		return notFound("interrupt_not_found", "node %.100q waits for nothing", node)
	default:
		return err
	}
	if Drives(e) {
		h.kick(e.ID)
	}
	status := StatusRunning
	if open.lacks() && res.Decision == agentbus.DecisionDenied {
		status = StatusCancelling
	}
	return answer(w, http.StatusOK, map[string]any{"runId": e.ID, "nodeId": node, "status": status})
}

// credited lets a run go on that waits for the credential of its payer, on the one
// that its answer came with, or ends it (E57, R18).
func (h *Host) credited(r *http.Request, e *agentbus.Execution, d agentbus.Decision, auth agentbus.Credential) error {
	if h.cfg.Conversations == nil {
		return refuse(http.StatusConflict, "run_not_resumable", "the host does not drive this run")
	}
	if d == agentbus.DecisionDenied {
		return h.cfg.Conversations.Cancel(r.Context(), e.Run, string(e.Payer), "its payer sends no credential")
	}
	return h.cfg.Conversations.Resume(r.Context(), e.Run, auth)
}

// decides puts an answer into the words of a conversation's turn: its text, and the
// resolution of a policy part, which is for the agent alone (E57). A credential
// that was asked for is not taken out of the answer.
func (h *Host) decides(r *agentbus.Resolution, kind string, value json.RawMessage, redact *eventlog.Redactor) error {
	if h.cfg.Conversations == nil {
		return refuse(http.StatusConflict, "run_not_resumable", "the host does not drive this run")
	}
	var v struct {
		Text   string          `json:"text"`
		Reason string          `json:"reason"`
		Policy json.RawMessage `json:"policy_resolution"`
		Held   json.RawMessage `json:"decision"` // in place of the one that is held
	}
	if json.Unmarshal(value, &v) != nil { // a string, of what is no object
		_ = json.Unmarshal(value, &v.Text)
	}
	r.Text, r.Policy = v.Text, v.Policy
	switch {
	case kind == "clarification":
		for _, a := range answersOf(value) { // it has one question
			if json.Unmarshal(a, &r.Text) != nil {
				r.Text = string(a)
			}
		}
	case kind == "low-confidence" && r.Decision == agentbus.DecisionGranted:
		r.Text = string(v.Held)
	case r.Decision == agentbus.DecisionDenied:
		r.Text = cmp.Or(v.Reason, v.Text)
	}
	if kind != "custom" {
		r.Text = redact.Text(r.Text)
	}
	return nil
}

var errResolved = refuse(http.StatusConflict, "interrupt_already_resolved", "this interrupt is decided already")

// decisionOf is an answer in the words of the store.
func decisionOf(value json.RawMessage) agentbus.Decision {
	var v struct {
		Action string `json:"action"`
	}
	if json.Unmarshal(value, &v) == nil && v.Action == "reject" {
		return agentbus.DecisionDenied
	}
	return agentbus.DecisionGranted
}

// unfit refuses an answer that is none to what was asked.
func unfit(message string) *refusal {
	return refuse(http.StatusUnprocessableEntity, "validation_error", "%s", message)
}

// fitting refuses an answer that is none to what was asked (E37).
func fitting(q agentbus.InterruptPayload, value json.RawMessage) error {
	switch q.Kind {
	case "approval":
		var data approvalData
		var v struct {
			Action string `json:"action"`
		}
		_ = json.Unmarshal(q.Data, &data) // we wrote it
		if json.Unmarshal(value, &v) != nil || !slices.Contains(data.Actions, v.Action) {
			e := unfit("the action is none of those that are offered")
			e.details = map[string]any{"supported": data.Actions}
			return e
		}
	case "low-confidence":
		v, err := ratificationOf(value)
		if err != nil || absent(v.Decision) && v.Action != "accept" && v.Action != "reject" {
			return unfit("send a decision, or the action accept or reject")
		}
	case "clarification":
		if answersOf(value) == nil {
			return unfit("send the answers: a map of their questions, or an array of id and answer")
		}
	}
	return nil
}

// A ratification answers what became of a held decision (E32).
type ratification struct {
	Action   string          `json:"action"`
	Decision json.RawMessage `json:"decision"` // in its place
}

func ratificationOf(value json.RawMessage) (v ratification, err error) {
	return v, json.Unmarshal(value, &v)
}

// absent reports whether a member is not there, or is null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// directing refuses what would be put in the place of the decision of a supervisor
// and is none: it could only end the run, or let the held one stand (E32, E40). Of
// a supervisor, unlike of other agents, nothing was told before it was asked.
func (h *Host) directing(e *agentbus.Execution, f *Fold, open *suspended, value json.RawMessage) error {
	v, _ := ratificationOf(value) // it fits
	if open.Kind != "low-confidence" || f.told[open.NodeID] || absent(v.Decision) || v.Action == "reject" {
		return nil
	}
	var d agentbus.OrchestratorDecision
	if json.Unmarshal(v.Decision, &d) != nil || !valid(&d) {
		return unfit("the decision is none of a supervisor: next-worker with nextWorkerIds, ask-user with a prompt, or terminate")
	}
	if _, ours := readSpec(e); ours || d.Kind == "terminate" {
		return nil
	}
	var others []string // a moderator gives the word to one of them
	if wf := h.conversation(e.Conversation); wf != nil {
		for i := range wf.Nodes {
			if id := wf.Nodes[i].ID; id != open.NodeID {
				others = append(others, id)
			}
		}
	}
	if len(d.NextWorkerIDs) != 1 || !slices.Contains(others, d.NextWorkerIDs[0]) {
		r := unfit("a moderator names one of the others, or terminates")
		r.details = map[string]any{"supported": others}
		return r
	}
	return nil
}

// A token names an interrupt to who was given it: run, key and expiry, and their
// HMAC (E4).
func (h *Host) token(run agentbus.ExecutionID, key string, expires time.Time) string {
	text := string(run) + "\x00" + key + "\x00" + strconv.FormatInt(expires.Unix(), 10)
	return base64.RawURLEncoding.EncodeToString(append([]byte(text), h.sign(text)...))
}

func (h *Host) sign(text string) []byte {
	m := hmac.New(sha256.New, append([]byte("openwop interrupt\x00"), h.cfg.TokenKey...))
	m.Write([]byte(text))
	return m.Sum(nil)
}

// tokenOf reads a token that was signed here.
func (h *Host) tokenOf(s string) (run agentbus.ExecutionID, key string, err error) {
	none := notFound("interrupt_not_found", "there is no such interrupt")
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) <= sha256.Size || len(h.cfg.TokenKey) == 0 {
		return "", "", none
	}
	text := b[:len(b)-sha256.Size]
	if !hmac.Equal(h.sign(string(text)), b[len(text):]) {
		return "", "", none
	}
	parts := bytes.Split(text, []byte{0})
	if len(parts) != 3 {
		return "", "", none
	}
	expires, err := strconv.ParseInt(string(parts[2]), 10, 64)
	if err != nil || time.Now().Unix() >= expires {
		return "", "", refuse(http.StatusGone, "interrupt_expired", "the time of this interrupt is up")
	}
	return agentbus.ExecutionID(parts[0]), string(parts[1]), nil
}

// readToken serves GET /v1/interrupts/{token}. It takes <runId>:<key> too, of the
// principal's own, and answers with the token.
func (h *Host) readToken(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	e, key, err := h.byToken(r, p)
	if err != nil {
		return err
	}
	f, err := h.fold(r.Context(), e)
	if err != nil {
		return err
	}
	node, _ := splitKey(key)
	open, waits := f.waiting(node, key)
	if !waits {
		if f.ever[node] {
			return errResolved
		}
		return notFound("interrupt_not_found", "there is no such interrupt")
	}
	i, found, err := h.cfg.Store.Interrupt(r.Context(), open.interrupt(e.ID))
	if err != nil {
		return err
	}
	if !found { // it is none of the store's, and waits for ever
		i.Expires = time.Now().UTC().Add(h.cfg.InterruptTimeout)
	}
	return answer(w, http.StatusOK, map[string]any{
		"runId": e.ID, "nodeId": node, "interruptId": key, "interrupt": f.questions[key], "token": h.token(e.ID, key, i.Expires), "expiresAt": i.Expires.UTC(),
	})
}

func (h *Host) byToken(r *http.Request, p agentbus.Principal) (*agentbus.Execution, string, error) {
	token := r.PathValue("token")
	if id, key, plain := strings.Cut(token, ":"); plain {
		e, err := h.find(r, p, id)
		return e, key, err
	}
	run, key, err := h.tokenOf(token)
	if err != nil {
		return nil, "", err
	}
	e, err := h.find(r, p, string(run))
	return e, key, err
}

// resolveToken serves POST /v1/interrupts/{token}.
func (h *Host) resolveToken(w http.ResponseWriter, r *http.Request, p agentbus.Principal) error {
	e, key, err := h.byToken(r, p)
	if err != nil {
		return err
	}
	value, err := h.resumeBody(r)
	if err != nil {
		return err
	}
	node, _ := splitKey(key)
	return h.resolve(w, r, p, e, node, key, value)
}
