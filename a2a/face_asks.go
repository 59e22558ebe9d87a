package a2a

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// A Surfaced says of a policy part that a task shows where it comes from, beside
// the part, which nobody edits (C19).
type Surfaced struct {
	From      string               `json:"from"`   // the participants that lead to who asks, "/" between them
	Digest    string               `json:"digest"` // "sha-256:" and the hex digest of the part, its members sorted
	Interrupt agentbus.InterruptID `json:"interrupt"`
}

// partDigest is the digest of a policy part.
func partDigest(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) == nil {
		if sorted, err := oneLine(v); err == nil {
			raw = sorted
		}
	}
	sum := sha256.Sum256(raw)
	return "sha-256:" + hex.EncodeToString(sum[:])
}

// question returns what a task that waits asks for: in words, and the policy
// parts as their issuers wrote them (C19, C28); those of x402 where x402 reads
// them (C32). What runs below are parked on is read from there: there may be
// several, and each has its own part.
func (l *live) question(ctx context.Context, e *agentbus.Error) *sdk.Message {
	ask := e.Ask
	m := l.say(cmp.Or(ask.Prompt, ask.Title, e.Message), "asks."+time.Now().UTC().Format("20060102T150405.000000"))
	if len(ask.Choices) > 0 {
		m.Parts = append(m.Parts, sdk.NewTextPart("\n("+strings.Join(ask.Choices, ", ")+")"))
	}
	asks, from := []agentbus.Ask{*ask}, []any(nil)
	if open := l.parked(ctx, ask); len(open) > 0 {
		asks = nil
		for i := range open {
			asks = append(asks, open[i].Ask)
			path := make([]string, len(open[i].Path))
			for j, s := range open[i].Path {
				path[j] = string(s)
			}
			from = append(from, map[string]any{"from": strings.Join(path, "/"), "digest": partDigest(open[i].Ask.Policy), "interrupt": string(open[i].ID)})
		}
	}
	var parts []json.RawMessage
	for i := range asks {
		if len(asks[i].Policy) == 0 {
			continue
		}
		parts = append(parts, asks[i].Policy)
		m.Parts = append(m.Parts, dataOf(asks[i].Policy))
		for name, v := range payments(&asks[i]) {
			if _, told := m.Metadata[name]; !told {
				m.SetMeta(name, v)
			}
		}
	}
	switch {
	case len(parts) == 1:
		m.SetMeta(metaMentionable, map[string]any{metaPolicy: parts[0]})
	case len(parts) > 1:
		m.SetMeta(metaMentionable, map[string]any{metaPolicy: parts})
	}
	told := map[string]any{}
	if len(from) > 0 && len(parts) > 0 {
		told["surfaced"] = from
	}
	if tellChildren(told, e.Children); len(told) > 0 {
		m.SetMeta(MetadataKey, told)
	}
	return m
}

// parked returns what runs below are parked on, in words of policy, for an ask.
func (l *live) parked(ctx context.Context, ask *agentbus.Ask) (open []agentbus.Interrupt) {
	if l.face.config.Interrupt == nil {
		return nil
	}
	for _, id := range ask.Interrupts {
		i, found, err := l.face.config.Interrupt(ctx, id)
		if err != nil {
			l.face.log(ctx, "what the task waits for cannot be read", l.stored.ID, err)
			return nil
		}
		if found && i.Open() && len(i.Ask.Policy) > 0 {
			open = append(open, i)
		}
	}
	return open
}

// payments returns what an ask says in the words of x402.
func payments(ask *agentbus.Ask) map[string]json.RawMessage {
	if len(ask.X402) > 0 {
		return ask.X402
	}
	var part struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(ask.Policy, &part) // a list, or nothing of x402
	return paying(part.Data)
}

var errNotAsked = fault(CodeInvalidParams, "", "the resolution answers nothing that this task asked", "name the state of the policy part that the task shows now")

// decide resolves what a run below is parked on for the task (R22): one of what
// it waits for, that whose state the resolution names, or the first that waits
// (C31). Whoever was faster has decided.
func (h handler) decide(ctx context.Context, a *wanted, r *agentbus.Resolution) error {
	if a == nil || h.config.Decide == nil || len(a.Interrupts) == 0 {
		return nil
	}
	for _, id := range a.Interrupts {
		done, err := h.config.Decide(ctx, id, *r)
		if err != nil || done {
			return err
		}
	}
	if r.PolicyState() == "" { // all was decided meanwhile
		return nil
	}
	return errNotAsked
}

// resolution reads a message as the answer to what a task waits for (C28, C30,
// C32): what it says of the policy part goes to the part's issuer as it came, who
// decides.
func resolution(in *incoming, ask *wanted) *agentbus.Resolution {
	out := &agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: in.text, By: in.request.Caller.ID, At: time.Now()}
	if ask != nil {
		out.Resume = ask.Resume
		if ask.Kind == agentbus.AskApproval && denies(in.text) {
			out.Decision = agentbus.DecisionDenied
		}
	}
	payment := paying(in.message.Metadata)
	told, _ := metaAt(in.message.Metadata, metaMentionable, metaResolution).(map[string]any)
	if told == nil && payment == nil {
		return out
	}
	both := map[string]any{}
	maps.Copy(both, told)
	maps.Copy(both, payment)
	out.Policy, _ = oneLine(both) // it was JSON
	switch d := agentbus.Decision(text(metaAt(in.message.Metadata, metaMentionable, metaResolution, "outcome"))); d {
	case agentbus.DecisionDenied, agentbus.DecisionExpired:
		out.Decision = d
	case agentbus.DecisionGranted, agentbus.DecisionWithdrawn:
	}
	return out
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// denies reports whether an answer in words is a no.
func denies(s string) bool {
	switch strings.ToLower(strings.Trim(strings.TrimSpace(s), ".!")) {
	case "no", "n", "reject", "rejected", "deny", "denied":
		return true
	}
	return false
}
