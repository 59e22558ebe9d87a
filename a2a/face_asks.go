package a2a

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/tidwall/gjson"

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
// several, and each has its own part. An approval is asked for by a part of ours.
func (l *live) question(ctx context.Context, e *agentbus.Error) *sdk.Message {
	ask := e.Ask
	m := l.say(cmp.Or(ask.Prompt, ask.Title, e.Message), "asks."+time.Now().UTC().Format("20060102T150405.000000"))
	if len(ask.Choices) > 0 {
		m.Parts = append(m.Parts, sdk.NewTextPart("\n("+strings.Join(ask.Choices, ", ")+")"))
	}
	open := l.parked(ctx, ask)
	if len(open) == 0 {
		open = []agentbus.Interrupt{{Ask: *ask}}
	}
	asks, from := make([]agentbus.Ask, len(open)), []any(nil)
	for i := range open {
		id := open[i].ID
		if asks[i] = open[i].Ask; asks[i].Kind == agentbus.AskApproval && len(asks[i].Policy) == 0 {
			var mine issued
			asks[i].Policy, mine = issue(&asks[i], id)
			l.issued = append(l.issued, mine)
		}
		if id == "" {
			continue
		}
		path := make([]string, len(open[i].Path))
		for j, s := range open[i].Path {
			path[j] = string(s)
		}
		from = append(from, map[string]any{"from": strings.Join(path, "/"), "digest": partDigest(asks[i].Policy), "interrupt": string(id)})
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

// parked returns what runs below are parked on for an ask: by policy parts, and
// approvals.
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
		if found && i.Open() && (len(i.Ask.Policy) > 0 || i.Ask.Kind == agentbus.AskApproval) {
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

// errAfresh says that an answer decides none of the approvals that a task waits for.
var errAfresh = errors.New("decides nothing")

var errNotAsked = fault(CodeInvalidParams, "", "the resolution answers nothing that this task asked", "name the state of the policy part that the task shows now")

// decide resolves what a run below is parked on for the task (R22): one of what
// it waits for, that whose state the resolution names, or the first that waits
// (C31). Whoever was faster has decided.
//
// An approval is decided by the part that was issued for it; errAfresh: by none.
func (h handler) decide(ctx context.Context, a *wanted, r *agentbus.Resolution) (err error) {
	if a != nil && len(a.Issued) > 0 {
		of, how, ok := a.answered(r)
		if ok {
			*r = how
			if of.Interrupt != "" && h.config.Decide != nil {
				_, err = h.config.Decide(ctx, of.Interrupt, how)
			}
			return err
		}
		if len(a.Issued) >= len(a.Interrupts) || r.PolicyState() == "" && r.Policy == nil { // nothing else was asked, or meant
			return errAfresh
		}
	}
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
	out := &agentbus.Resolution{Decision: agentbus.DecisionGranted, Text: in.text, By: in.request.Caller.ID, At: time.Now().UTC()}
	if ask != nil {
		out.Resume = ask.Resume
	}
	exact := in.metadata()
	payment := paying(exact)
	var told struct {
		Resolution map[string]json.RawMessage `json:"policy_resolution"`
	}
	_ = json.Unmarshal(exact[metaMentionable], &told)
	if told.Resolution == nil && payment == nil {
		return out
	}
	both := map[string]json.RawMessage{}
	maps.Copy(both, told.Resolution)
	maps.Copy(both, payment)
	out.Policy, _ = oneLine(both) // it was JSON
	switch d := agentbus.Decision(text(metaAt(in.message.Metadata, metaMentionable, metaResolution, "outcome"))); d {
	case agentbus.DecisionDenied, agentbus.DecisionExpired:
		out.Decision = d
	case agentbus.DecisionGranted, agentbus.DecisionWithdrawn:
	}
	return out
}

// metadata returns the metadata of the message with its numbers as they came: what is
// signed must not be rounded, as the SDK rounds (C32).
func (in *incoming) metadata() (exact map[string]json.RawMessage) {
	raw := []byte(gjson.GetBytes(in.params, "message.metadata").Raw)
	if len(raw) == 0 { // a message of 0.3 may stand elsewhere
		raw, _ = json.Marshal(in.message.Metadata) // it was JSON
	}
	_ = json.Unmarshal(raw, &exact)
	return exact
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
