package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// Members of Mentionable's metadata (C28), and what those of x402 begin with (C32).
const (
	metaPolicy     = "policy"
	metaResolution = "policy_resolution"
	x402           = "x402."
	x402Status     = "x402.payment.status"
	x402Receipts   = "x402.payment.receipts"
	x402Completed  = "payment-completed"
)

// maxPolicy is the most bytes of a policy part that refuses, which go on with the
// refusal.
const maxPolicy = 32 << 10

// maxReceipts is the most bytes of receipts that are passed on with an answer.
const maxReceipts = 32 << 10

// A resume is what is needed to go on with a task that waits: an Ask's Resume.
type resume struct {
	Task    string `json:"task"`
	Context string `json:"context,omitempty"`
	State   string `json:"state,omitempty"` // of the policy part: a secret of its issuer
	X402    bool   `json:"x402,omitempty"`
}

func resumeOf(raw json.RawMessage) (r resume) {
	_ = json.Unmarshal(raw, &r) // what is none of ours names no task
	return r
}

// seen keeps the policy part of an answer as its bytes came: what is decoded and
// encoded again is not what its issuer wrote (C19). A status without one takes
// back that of the status before.
func (t *talk) seen(raw []byte) {
	type says struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	type status struct {
		Status *struct {
			Message says `json:"message"`
		} `json:"status"`
	}
	type event struct {
		status

		Task         status `json:"task"`
		StatusUpdate status `json:"statusUpdate"`
		Message      *says  `json:"message"`
	}
	var f struct {
		event

		Result event `json:"result"`
	}
	if json.Unmarshal(raw, &f) != nil {
		return
	}
	for _, s := range [...]*status{&f.status, &f.Task, &f.StatusUpdate, &f.Result.status, &f.Result.Task, &f.Result.StatusUpdate} {
		if s.Status != nil {
			t.says(s.Status.Message.Metadata)
		}
	}
	for _, m := range [...]*says{f.Message, f.Result.Message} {
		if m != nil {
			t.says(m.Metadata)
		}
	}
}

// says takes the metadata of what the agent said last. Receipts stay: each list of
// them has those before.
func (t *talk) says(meta map[string]json.RawMessage) {
	t.policy, t.x402 = policyOf(meta), paying(meta)
	if raw := meta[x402Receipts]; len(raw) > 0 && len(raw) <= maxReceipts {
		_ = json.Unmarshal(raw, &t.receipts) // no list: it is none of x402
	}
}

// policyOf returns what a status asks for: a policy part as it came (C28), or a
// payment of x402 as one, its metadata untouched (C32). nil: neither.
func policyOf(meta map[string]json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(meta[metaMentionable], &m) == nil && len(m[metaPolicy]) > 0 && string(m[metaPolicy]) != "null" {
		return m[metaPolicy]
	}
	if string(meta[x402Status]) != `"payment-required"` {
		return nil
	}
	raw, err := oneLine(map[string]any{"kind": agentbus.PolicyPaymentRequired, "message": "the agent asks for a payment", "data": paying(meta)})
	if err != nil {
		return nil
	}
	return raw
}

// paying returns the members of x402; nil: there are none.
func paying[V any](meta map[string]V) (found map[string]V) {
	for name, v := range meta {
		if !strings.HasPrefix(name, x402) {
			continue
		}
		if found == nil {
			found = map[string]V{}
		}
		found[name] = v
	}
	return found
}

// conclude ends a call whose answer is over: with what it took, or why it is no
// answer.
func (t *talk) conclude(ctx context.Context) error {
	text := ""
	if m := t.answer.status.Message; m != nil {
		text, _, _ = textOf(m.Parts) // what cannot be carried is not what it says
	}
	p := agentbus.ReadPolicyPart(t.policy)
	switch t.answer.status.State {
	case sdk.TaskStateInputRequired, sdk.TaskStateAuthRequired:
		if t.policy == nil || !p.Kind.Refuses() {
			return t.ask(&p, text)
		}
		return t.failed(&p, text)
	case sdk.TaskStateFailed, sdk.TaskStateRejected, sdk.TaskStateCanceled:
		return t.failed(&p, text)
	default:
		if t.policy != nil { // whatever it asks for, it is no success, and nobody could answer it any more
			return t.failed(&p, text)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !t.yield(agentbus.Chunk{Usage: t.answer.usage, Finish: "stop", Receipts: t.receipts}, nil) {
		return errStopped
	}
	return nil
}

// ask returns what a task that waits wants to be told (R22).
func (t *talk) ask(p *agentbus.PolicyPart, text string) error {
	_, paid := p.Data[x402Status] // it asks by x402 alone
	raw, err := json.Marshal(resume{Task: string(t.answer.task), Context: t.contextID(), State: p.State, X402: paid})
	if err != nil {
		return err
	}
	ask := &agentbus.Ask{Kind: agentbus.AskClarification, Title: plain(p.Title), Prompt: text, Resume: raw}
	e := &agentbus.Error{Code: agentbus.CodeInputRequired, Message: "the agent wants to be told something before it goes on", Ask: ask}
	switch {
	case t.policy != nil:
		ask.Kind, ask.Policy, ask.Prompt = agentbus.AskPolicy, t.policy, cmp.Or(p.Message, text)
		ask.Issuer = t.backend.url.Hostname()
		if !paid {
			ask.X402 = t.x402
		}
		if p.Kind == agentbus.PolicyPaymentRequired {
			e.Code, e.Message = agentbus.CodePaymentRequired, "the agent asks for a payment before it goes on"
		}
		if p.Kind == agentbus.PolicyUnauthorized {
			ask.Kind = agentbus.AskAuth
			e.Explain = &agentbus.Explain{Rule: "C27", Observed: string(p.Kind), Supported: schemes(p)}
		}
	case t.answer.status.State == sdk.TaskStateAuthRequired:
		ask.Kind = agentbus.AskAuth
	}
	return e
}

func (t *talk) contextID() string {
	if t.session.Context != "" {
		return t.session.Context
	}
	if m := t.answer.status.Message; m != nil {
		return m.ContextID
	}
	return ""
}

// failed returns why a task gave no answer: what a policy of the agent says
// (C27), else what a bus says that the agent is, else its own words.
func (t *talk) failed(p *agentbus.PolicyPart, text string) error {
	e := &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent failed"}
	switch t.answer.status.State {
	case sdk.TaskStateRejected: // E60
		e.Code, e.Message = agentbus.CodeForbidden, "the agent rejected the task"
	case sdk.TaskStateCanceled:
		e.Message = "the task was cancelled at the agent"
	default:
	}
	if t.policy != nil {
		e.Code, e.Message, e.Status = p.Kind.Code(), "a policy of the agent keeps it from an answer", p.Kind.Status()
		if len(t.policy) <= maxPolicy {
			e.Policy = t.policy
		}
		e.Explain = &agentbus.Explain{Rule: "C27", Observed: plain(string(p.Kind)), Supported: schemes(p)}
		if e.Code.Retryable() {
			e.RetryAfter = time.Duration(p.RetryAfter) * time.Second
		}
	}
	if m := t.answer.status.Message; m != nil {
		if code, _ := metaAt(m.Metadata, MetadataKey, "code").(string); t.policy == nil && agentbus.Code(code).Known() {
			e.Code = agentbus.Code(code)
			said, told := metaAt(m.Metadata, MetadataKey, "retryable").(bool)
			e.Final = told && !said
		}
	}
	if words := plain(cmp.Or(p.Message, text)); words != "" {
		e.Message += ": " + words
	}
	return e
}

// maxSchemes is how many ways to sign in are told.
const maxSchemes = 8

// schemes returns by which ways an agent that wants somebody to sign in takes that.
func schemes(p *agentbus.PolicyPart) (names []string) {
	for _, c := range p.Challenges[:min(len(p.Challenges), maxSchemes)] {
		names = append(names, plain(c.Scheme))
	}
	return names
}

// resolve makes m the answer to what a task waits for (C28, C30, C32).
func (t *talk) resolve(m *sdk.Message, r *agentbus.Resolution) {
	at := resumeOf(r.Resume)
	m.TaskID, m.ContextID = sdk.TaskID(at.Task), at.Context
	var given map[string]json.RawMessage
	_ = json.Unmarshal(r.Policy, &given) // no object: nothing of x402
	paid := paying(given)
	for name, v := range paid {
		m.SetMeta(name, v)
		delete(given, name)
	}
	switch {
	case at.X402 && len(paid) > 0:
	case len(paid) > 0:
		mention(m, metaResolution, given)
	case len(r.Policy) > 0:
		mention(m, metaResolution, r.Policy)
	case at.State != "":
		mention(m, metaResolution, map[string]any{
			"in_reply_to_state": at.State, "outcome": string(r.Decision), "resolved_at": r.At.UTC().Format(time.RFC3339),
		})
	}
	m.Parts = sdk.ContentParts{sdk.NewTextPart(cmp.Or(r.Text, string(r.Decision)))}
}

// mention adds a member to what a message says in the words of Mentionable.
func mention(m *sdk.Message, member string, value any) {
	said, _ := m.Metadata[metaMentionable].(map[string]any)
	if said == nil {
		said = map[string]any{}
	}
	said[member] = value
	m.SetMeta(metaMentionable, said)
}
