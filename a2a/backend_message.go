package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// A session is what is known of one participant's conversation with an agent,
// within one run (A24).
type session struct {
	Context string          `json:"context,omitempty"` // as the agent named it
	Task    string          `json:"task,omitempty"`    // the last one
	Message string          `json:"message,omitempty"` // that the task was made of
	First   string          `json:"first,omitempty"`   // message of the same turn, whose task was cancelled
	Told    int             `json:"told,omitempty"`    // messages of the call that the agent was told
	Digest  agentbus.Digest `json:"digest"`            // of those
}

// key returns the key of the session of a call: its run, whoever speaks inside
// of it, and for whom.
func (t *talk) key(ctx context.Context) agentbus.Digest {
	l := &t.call.Lineage
	k := agentbus.TurnKey{Agent: t.backend.config.Name, Run: l.Run, Path: l.Path, Parent: l.Parent}
	if t.backend.config.Payer != nil {
		k.Payer = t.backend.config.Payer(ctx)
	}
	return k.Hash("session", string(l.Speaker))
}

// recall reads the session of the call, and names its message.
func (t *talk) recall(ctx context.Context) error {
	c := &t.backend.config
	t.message = messageID(&t.call.Lineage, c.Name)
	if r := t.call.Resolution; r != nil {
		raw, _ := json.Marshal(r) // a struct of ours
		t.message = messageID(&t.call.Lineage, c.Name, "resolution", string(raw))
		t.name(sdk.TaskID(resumeOf(r.Resume).Task))
	}
	if c.Sessions == nil || c.IsolateSessions || t.call.Lineage.Run == "" {
		return nil
	}
	raw, found, err := c.Sessions.Session(ctx, t.key(ctx))
	if err != nil || !found {
		return err
	}
	_ = json.Unmarshal(raw, &t.session) // what cannot be read is not known
	return nil
}

// keep stores what the agent said of context and task, once.
func (t *talk) keep(ctx context.Context, info sdk.TaskInfo) error {
	c := &t.backend.config
	now := session{Context: info.ContextID, Task: string(info.TaskID), Message: t.message, First: t.first, Told: len(t.call.Messages), Digest: told(t.call.Messages)}
	if now.Context == "" {
		now.Context = t.session.Context
	}
	if c.Sessions == nil || c.IsolateSessions || t.call.Lineage.Run == "" || t.session == now {
		return nil
	}
	t.session = now
	raw, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return c.Sessions.KeepSession(ctx, t.key(ctx), raw, time.Now())
}

// told returns the digest of messages.
func told(messages []agentbus.Message) agentbus.Digest {
	h := sha256.New()
	for i := range messages {
		for _, s := range [...]string{string(messages[i].Role), messages[i].Name, messages[i].Content} {
			h.Write(binary.AppendUvarint(nil, uint64(len(s))))
			h.Write([]byte(s))
		}
	}
	return agentbus.Digest(h.Sum(nil))
}

// request returns the message of the call (A21, A24): all that the agent was not
// told, in the context where it was told the rest. Lineage stands in the metadata
// as well as in the headers, so that it survives the agent's queues (A2). evidence
// is what it shows of who sends it, hop the signed one of its chain; none: nothing.
func (t *talk) request(evidence []byte, hop string) *sdk.SendMessageRequest {
	m := &sdk.Message{ID: t.message, Role: sdk.MessageRoleUser, Metadata: map[string]any{MetadataKey: json.RawMessage(LineageMetadata(t.call.Lineage))}}
	req := &sdk.SendMessageRequest{Message: m}
	l := t.call.Lineage
	l.Hop = hop
	if said := MentionMetadata(l, t.call.Inline); said != nil { // its place in the chain of agents (C4)
		m.SetMeta(metaMentionable, said)
	}
	if evidence != nil {
		mention(m, memberEvidence, json.RawMessage(evidence))
	}
	if r := t.call.Resolution; r != nil {
		t.resolve(m, r)
		return req
	}
	news := t.call.Messages
	s := &t.session
	if s.Context != "" && (s.Message == t.message || t.first != "") { // it comes again
		m.ContextID = s.Context
	} else if s.Context != "" && s.Told <= len(news) && told(news[:s.Told]) == s.Digest {
		m.ContextID, news = s.Context, news[s.Told:]
		for len(news) > 1 && news[0].Role == agentbus.RoleAssistant { // what the agent said itself
			news = news[1:]
		}
	}
	if m.ContextID != "" && s.Task != "" {
		m.ReferenceTasks = []sdk.TaskID{sdk.TaskID(s.Task)}
	}
	for i := range news {
		text := news[i].Content
		if news[i].Role == agentbus.RoleAssistant {
			text = "[assistant] " + text
		}
		if text != "" {
			m.Parts = append(m.Parts, sdk.NewTextPart(text))
		}
	}
	if len(m.Parts) == 0 {
		m.Parts = sdk.ContentParts{sdk.NewTextPart("")}
	}
	return req
}
