package a2a

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

const (
	// issuedFor is how long a state that this bus issued can be answered; after that
	// the task shows a fresh one (C29).
	issuedFor = 10 * time.Minute
	stateLen  = 32
	// dataChoices is where a part says what an approval can be answered with.
	dataChoices = "dev.agentbus.choices"
)

// An issued is a policy part that this bus asks by itself, for an approval, as it is
// kept: never with its state (C29). It is bound to the task, whose caller, context
// and request do not change, and good once: with the version of the task that has it.
type issued struct {
	State     agentbus.Digest      `json:"state"` // digest of the state
	Interrupt agentbus.InterruptID `json:"interrupt,omitempty"`
	Choices   []string             `json:"choices,omitempty"`
	Expires   time.Time            `json:"expires"`
}

// newState returns a state and its digest.
func newState() (state string, digest agentbus.Digest) {
	var secret [stateLen]byte
	_, _ = rand.Read(secret[:]) // never fails since Go 1.24
	state = base64.RawURLEncoding.EncodeToString(secret[:])
	return state, sha256.Sum256([]byte(state))
}

// issue makes the policy part by which an approval is asked for (C27, C29).
func issue(ask *agentbus.Ask, id agentbus.InterruptID) (json.RawMessage, issued) {
	state, digest := newState()
	part := map[string]any{
		"kind": agentbus.PolicyConsentRequired, "code": string(agentbus.AskApproval), "title": ask.Title,
		"message": cmp.Or(ask.Prompt, ask.Title, "this needs an approval"), "state": state,
	}
	if len(ask.Choices) > 0 {
		part["data"] = map[string]any{dataChoices: ask.Choices}
	}
	raw, _ := oneLine(part) // strings
	return raw, issued{State: digest, Interrupt: id, Choices: ask.Choices, Expires: time.Now().UTC().Add(issuedFor)}
}

// answered returns which approval a message decides, and how: by the state of its
// part, or, where nothing else was asked, in words that are one of its choices, a yes
// or a no. ok is false when it decides none: whatever was wrong is not told (C30).
func (a *wanted) answered(r *agentbus.Resolution) (of issued, how agentbus.Resolution, ok bool) {
	how = agentbus.Resolution{Decision: r.Decision, By: r.By, At: r.At, Resume: r.Resume}
	if state := r.PolicyState(); state != "" {
		digest := agentbus.Digest(sha256.Sum256([]byte(state)))
		i := slices.IndexFunc(a.Issued, func(one issued) bool { return one.State == digest && r.At.Before(one.Expires) })
		var said struct {
			Outcome agentbus.Decision `json:"outcome"`
		}
		if i < 0 || json.Unmarshal(r.Policy, &said) != nil || said.Outcome != r.Decision { // only a yes is a yes
			return of, how, false
		}
		if of = a.Issued[i]; slices.Contains(of.Choices, r.Text) {
			how.Text = r.Text
		}
		return of, how, true
	}
	of, words := a.Issued[0], strings.ToLower(strings.Trim(strings.TrimSpace(r.Text), ".!"))
	switch {
	case slices.Contains(of.Choices, strings.TrimSpace(r.Text)):
		how.Text = strings.TrimSpace(r.Text)
		how.Decision = agentbus.DecisionGranted
	case denies(words):
		how.Decision = agentbus.DecisionDenied
	case len(of.Choices) == 0 && slices.Contains([]string{"yes", "y", "accept", "accepted", "approve", "approved", "granted", "ok"}, words):
		how.Decision = agentbus.DecisionGranted
	default:
		return of, how, false
	}
	return of, how, true
}

// afresh shows a task that waits with new states in the parts that this bus issued:
// those before were used, are too old, or were not named (C30).
func (h handler) afresh(ctx context.Context, t *agentbus.Task, u *taken, m *agentbus.TaskMessage) error {
	now := time.Now().UTC()
	fresh := map[string]string{} // by the digest of the state before, in hex
	for i := range u.work.Asked.Issued {
		one := &u.work.Asked.Issued[i]
		state, digest := newState()
		fresh[hex.EncodeToString(one.State[:])] = state
		one.State, one.Expires = digest, now.Add(issuedFor)
	}
	u.task.Status.Timestamp = &now
	said := u.task.Status.Message
	said.Metadata, _ = renewed(said.Metadata, fresh).(map[string]any)
	for i, p := range said.Parts {
		if data := p.Data(); data != nil {
			said.Parts[i] = sdk.NewDataPart(renewed(data, fresh))
			said.Parts[i].MediaType = p.MediaType
		}
	}
	t.Updated, t.Version = now, t.Version+1
	var err error
	if t.Shown, err = oneLine(u.task); err == nil {
		t.Work, err = json.Marshal(u.work)
	}
	if err != nil {
		return err
	}
	return h.config.Tasks.UpdateTask(ctx, *t, m)
}

// renewed returns JSON in which states have been replaced.
func renewed(v any, fresh map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if state, ok := member.(string); ok && key == "state" {
				digest := sha256.Sum256([]byte(state))
				if next := fresh[hex.EncodeToString(digest[:])]; next != "" {
					v[key] = next
				}
				continue
			}
			v[key] = renewed(member, fresh)
		}
	case []any:
		for i := range v {
			v[i] = renewed(v[i], fresh)
		}
	}
	return v
}
