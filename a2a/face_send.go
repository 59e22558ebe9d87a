package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

const (
	maxMessageID = 512
	maxContextID = 512
	// What of a context's earlier tasks its agent is told again.
	maxRecalled      = 16
	maxRecalledBytes = 256 << 10
)

// SendMessage executes a message, and returns its task once it is over or waits,
// or at once where that is asked for (A32). A caller that leaves does not end it.
func (h handler) SendMessage(ctx context.Context, req *sdk.SendMessageRequest) (sdk.SendMessageResult, error) {
	t, err := h.send(ctx, req)
	if err != nil {
		return nil, failed(ctx, err)
	}
	var history *int
	wait := true
	if req.Config != nil {
		history, wait = req.Config.HistoryLength, !req.Config.ReturnImmediately
	}
	task, err := h.now(&t)
	if s := sdk.TaskState(t.State); err == nil && wait && !s.Terminal() && !interrupted(s) {
		if task, err = h.wait(ctx, &t); errors.Is(err, context.Canceled) && ctx.Err() != nil {
			task, err = h.now(&t) // a caller that has said all may read on: it learns where to ask
		}
	}
	if err != nil {
		return nil, failed(ctx, err)
	}
	return trimmed(task, history), nil
}

// wait returns a task once it is over or waits.
func (h handler) wait(ctx context.Context, t *agentbus.Task) (*sdk.Task, error) {
	l := h.find(t.ID)
	if l == nil {
		now, found, err := h.config.Tasks.Task(ctx, t.ID) // it may have ended just now
		if s := sdk.TaskState(now.State); err != nil || found && (s.Terminal() || interrupted(s)) {
			if err != nil {
				return nil, err
			}
			return shown(&now)
		}
		return h.elsewhere(ctx, t)
	}
	select {
	case <-l.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	task, _ := l.snapshot()
	if s := task.Status.State; !s.Terminal() && !interrupted(s) { // the face was closed, or somebody else ended it
		now, found, err := h.config.Tasks.Task(ctx, t.ID)
		if err != nil || !found || !sdk.TaskState(now.State).Terminal() {
			return nil, errDraining
		}
		return shown(&now)
	}
	return task, nil
}

// SendStreamingMessage executes a message and tells of its task as it goes.
func (h handler) SendStreamingMessage(ctx context.Context, req *sdk.SendMessageRequest) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		t, err := h.send(ctx, req)
		if err != nil {
			yield(nil, failed(ctx, err))
			return
		}
		h.stream(ctx, &t)(yield)
	}
}

// send makes a task of a message, goes on with one, or finds the one that the
// same message made before (A19).
func (h handler) send(ctx context.Context, req *sdk.SendMessageRequest) (t agentbus.Task, err error) {
	r, ok := FromContext(ctx)
	x := exchangeOf(ctx)
	if !ok || x == nil {
		return t, errNoCaller
	}
	s, ok := h.config.Agent(r.Agent)
	if !ok {
		return t, errNoAgent
	}
	text, err := h.check(req)
	if err != nil {
		return t, err
	}
	if asked, _ := Peek(REST, Method{}, x.params); asked.Webhook { // in a spelling that the SDK does not read; X36
		return t, errNoPush
	}
	ctx = context.WithoutCancel(ctx) // what has come whole is executed, whoever leaves (A32)
	said := asSent(req.Message, x.params)
	m := agentbus.TaskMessage{ID: req.Message.ID, Digest: x.digest}
	t, digest, found, err := h.config.Tasks.TaskOf(ctx, r.owner(), r.Agent, m.ID)
	if err != nil || found {
		return t, same(digest, &m, err)
	}
	if err := h.room(); err != nil {
		return t, err
	}
	in := incoming{request: r, message: clean(said), params: x.params, text: text, known: m, backend: s.Backend, noLegacy: s.NoLegacyParent}
	if req.Message.TaskID != "" {
		return h.resume(ctx, &in)
	}
	return h.create(ctx, &in)
}

// same refuses another message under an id that is taken (A19).
func same(digest agentbus.Digest, m *agentbus.TaskMessage, err error) error {
	if err == nil && digest != m.Digest {
		return errConflict
	}
	return err
}

// check refuses a message that no agent here could be sent, and returns its text.
func (h handler) check(req *sdk.SendMessageRequest) (text string, err error) {
	m := req.Message
	switch {
	case m == nil:
		return "", fault(CodeInvalidParams, "", "there is no message", "send params.message")
	case m.ID == "" || len(m.ID) > maxMessageID:
		return "", fault(CodeInvalidParams, "", "messageId is missing or too long", "give the message an id of its own, of at most 512 bytes")
	case len(m.ContextID) > maxContextID:
		return "", fault(CodeInvalidParams, "", "contextId is too long", "send at most 512 bytes")
	case m.Role != sdk.MessageRoleUser:
		return "", fault(CodeInvalidParams, "", "the role of the message is not ROLE_USER", "send ROLE_USER")
	case len(m.Parts) == 0:
		return "", fault(CodeInvalidParams, "", "the message has no parts", "send a part with text")
	case slices.ContainsFunc(m.Parts, func(p *sdk.Part) bool { return p == nil || p.Content == nil }):
		return "", fault(CodeInvalidParams, "", "a part of the message holds nothing", "send text, data, a file or a link in each part")
	case req.Config != nil && req.Config.PushConfig != nil: // X36
		return "", errNoPush
	case req.Config != nil && countable(req.Config.HistoryLength) != nil:
		return "", errHistory
	}
	parts := make([]string, 0, len(m.Parts))
	for _, p := range m.Parts {
		text, tools, err := textOf(sdk.ContentParts{p})
		if err != nil {
			return "", Standard(CodeContentTypeNotSupported, "", agentbus.AsError(err))
		}
		for i := range tools { // said to the agent as it came
			raw, _ := json.Marshal(toolPart(&tools[i]).Data()) // strings
			text = string(raw)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n"), nil
}

// clean returns m without the proofs of who somebody is: they are not stored
// (C20).
func clean(m *sdk.Message) *sdk.Message {
	said, ok := m.Metadata[metaMentionable].(map[string]any)
	if !ok {
		return m
	}
	kept := map[string]any{}
	for k, v := range said {
		if k != "identity_evidence" && k != "verifiable_credentials" {
			kept[k] = v
		}
	}
	out := *m
	out.Metadata = map[string]any{}
	maps.Copy(out.Metadata, m.Metadata)
	out.Metadata[metaMentionable] = kept
	return &out
}

// An incoming is a message that is to be executed.
type incoming struct {
	request  *Request
	message  *sdk.Message
	params   json.RawMessage // that it stands in, as they came
	text     string
	known    agentbus.TaskMessage
	backend  agentbus.Backend
	noLegacy bool
}

// create makes a task of a message, durably, and begins it.
func (h handler) create(ctx context.Context, in *incoming) (agentbus.Task, error) {
	r := *in.request
	now := time.Now().UTC()
	id := string(r.Lineage.Run) // a task is a run (E60)
	if !r.Minted || id == "" || r.Lineage.Parent != "" {
		id = string(agentbus.NewRunID()) // of a run that is somebody else's, a part: a program need not name the run of its turn (B2)
		if r.Lineage.Run == "" {
			r.Lineage.Run = agentbus.RunID(id)
		}
	}
	if r.Lineage.Turn == "" { // the same after a crash
		r.Lineage.Turn = agentbus.TurnID(id + ".a2a")
	}
	m := *in.message
	if m.TaskID = sdk.TaskID(id); m.ContextID == "" {
		m.ContextID = "ctx_" + strings.TrimPrefix(id, "run_")
	}
	r.Lineage.ParentContext, r.Lineage.RootContext = r.Lineage.Contexts(m.ContextID, !in.noLegacy) // K2, K3
	before, err := h.recalled(ctx, &r, in.message.ContextID)
	if err != nil {
		return agentbus.Task{}, err
	}
	w := work{
		Caller: r.Caller, Base: r.Base, Lineage: unsigned(r.Lineage), Chain: r.Lineage.Chain, Minted: r.Minted,
		Messages: append(before, agentbus.Message{Role: agentbus.RoleUser, Content: in.text}),
	}
	task := &sdk.Task{
		ID: m.TaskID, ContextID: m.ContextID, History: []*sdk.Message{&m},
		Status:   sdk.TaskStatus{State: sdk.TaskStateSubmitted, Timestamp: &now},
		Metadata: map[string]any{MetadataKey: map[string]any{"run": string(r.Lineage.Run), "turn": string(r.Lineage.Turn)}},
	}
	t := agentbus.Task{
		ID: id, Agent: r.Agent, Principal: r.owner(), Payer: r.Payer, Context: m.ContextID, State: string(task.Status.State),
		Version: 1, Owner: h.config.Owner, Created: now, Updated: now,
	}
	if err := h.fill(&t, task, &w, r.Lineage.Auth); err != nil {
		return t, err
	}
	made, digest, known, err := h.config.Tasks.CreateTask(ctx, t, in.known)
	if err != nil || known {
		return made, same(digest, &in.known, err)
	}
	return t, h.begin(t, task, w, &r, in.backend) //nolint:contextcheck // a task outlives its caller (A32)
}

// fill writes a task as it is stored.
func (f *Face) fill(t *agentbus.Task, task *sdk.Task, w *work, auth agentbus.Credential) (err error) {
	w.Signed, t.Sealed = !auth.IsZero(), nil
	if t.Shown, err = oneLine(task); err != nil {
		return err
	}
	if t.Work, err = json.Marshal(w); err == nil && f.config.Seal != nil && !auth.IsZero() {
		t.Sealed, err = f.config.Seal(t.ID, auth)
	}
	return err
}

// unsigned is a lineage as headers, without its credential.
func unsigned(l agentbus.Lineage) http.Header {
	l.Auth = agentbus.Credential{}
	h := http.Header{}
	l.SetHeaders(h)
	return h
}

// recalled returns what was said in a context before, of the caller's tasks that
// were completed: agents keep no sessions of their own.
func (h handler) recalled(ctx context.Context, r *Request, contextID string) ([]agentbus.Message, error) {
	if contextID == "" {
		return nil, nil
	}
	stored, _, err := h.config.Tasks.Tasks(ctx, agentbus.TaskQuery{
		Agent: r.Agent, Principal: r.owner(), Context: contextID, State: string(sdk.TaskStateCompleted), Limit: maxRecalled,
	})
	if err != nil {
		return nil, err
	}
	var said []agentbus.Message
	size := 0
	for i := range stored { // the last one first
		task, err := shown(&stored[i])
		if err != nil {
			return nil, err
		}
		pair := exchanged(task)
		for j := range pair {
			size += len(pair[j].Content)
		}
		if size > maxRecalledBytes {
			break
		}
		said = append(pair, said...)
	}
	return said, nil
}

// exchanged returns what was asked and answered in a task.
func exchanged(t *sdk.Task) (said []agentbus.Message) {
	for _, m := range t.History {
		if m == nil || m.Role != sdk.MessageRoleUser {
			continue
		}
		if text, _, err := textOf(m.Parts); err == nil && text != "" {
			said = append(said, agentbus.Message{Role: agentbus.RoleUser, Content: text})
		}
	}
	for _, a := range t.Artifacts {
		if text, _, err := textOf(a.Parts); err == nil && text != "" {
			said = append(said, agentbus.Message{Role: agentbus.RoleAssistant, Content: text})
		}
	}
	return said
}

// resume goes on with a task that waits (A30, C28).
func (h handler) resume(ctx context.Context, in *incoming) (t agentbus.Task, err error) {
	if t, err = h.of(ctx, string(in.message.TaskID)); err != nil {
		return t, err
	}
	state := sdk.TaskState(t.State)
	switch {
	case in.message.ContextID != "" && in.message.ContextID != t.Context:
		return t, errOther
	case state.Terminal():
		return t, errOver
	case !interrupted(state):
		return t, errBusy
	}
	defer h.answer(t.ID)()
	u := taken{backend: in.backend}
	if u.task, err = shown(&t); err != nil {
		return t, err
	}
	if err := json.Unmarshal(t.Work, &u.work); err != nil {
		return t, err
	}
	if u.request, err = u.work.request(&t); err != nil {
		return t, err
	}
	u.request.Lineage.Auth, u.request.Evidence, u.request.Hop = in.request.Lineage.Auth, in.request.Evidence, in.request.Hop // of who goes on with it
	before := u.work.Asked
	u.work.Resolution = resolution(in, before)
	switch err := h.decide(ctx, before, u.work.Resolution); {
	case errors.Is(err, errAfresh):
		u.work.Resolution = nil
		err = h.updated(ctx, &t, in, h.afresh(ctx, &t, &u, &in.known))
		return t, err
	case err != nil:
		return t, err
	}
	u.work.Asked = nil
	m := *in.message
	m.ContextID = t.Context
	if u.task.Status.Message != nil {
		u.task.History = append(u.task.History, u.task.Status.Message)
	}
	u.task.History = append(u.task.History, &m)
	err = h.updated(ctx, &t, in, h.goOn(ctx, &t, &u, &in.known))
	return t, err
}

// updated returns what a message to a task is answered with whose change ended with
// err. The task is another one when the same message came meanwhile (A19).
func (h handler) updated(ctx context.Context, t *agentbus.Task, in *incoming, err error) error {
	switch agentbus.CodeOf(err) {
	case agentbus.CodeTurnMismatch:
		made, digest, _, err := h.config.Tasks.TaskOf(ctx, t.Principal, t.Agent, in.known.ID)
		*t = made
		return same(digest, &in.known, err)
	case agentbus.CodeLeaseLost:
		return errBusy
	default:
		return err
	}
}
