package a2a

import (
	"encoding/json"
	"strings"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentbus/agentbus"
)

// An answer is what a talk has heard: the state of the task, and its text,
// artifact by artifact, of which each piece is passed on once (A23, A38).
type answer struct {
	task      sdk.TaskID
	status    sdk.TaskStatus
	message   *sdk.Message // the agent answered by a message, without a task
	artifacts []artifact
	said      strings.Builder // what was passed on, since the last void chunk
	tools     int             // tool calls passed on
	usage     *agentbus.Usage
	heard     int // events
}

// An artifact is one of a task, as text.
type artifact struct {
	id   sdk.ArtifactID
	text string
}

// over reports whether nothing more is to come.
func (a *answer) over() bool {
	s := a.status.State
	return a.message != nil || s.Terminal() || s == sdk.TaskStateInputRequired || s == sdk.TaskStateAuthRequired
}

// hear takes the next event, and returns what is to be passed on.
func (a *answer) hear(event sdk.Event) (chunks []agentbus.Chunk, err error) {
	a.heard++
	a.meter(event.Meta())
	switch e := event.(type) {
	case *sdk.Message:
		a.message = e
		a.meter(e.Metadata)
		return a.whole(e.Parts)
	case *sdk.Task:
		return a.snapshot(e)
	case *sdk.TaskArtifactUpdateEvent:
		return a.update(e)
	case *sdk.TaskStatusUpdateEvent:
		return a.turn(e.Status)
	}
	return nil, nil
}

// turn takes a new status. What the agent says while it works is passed on
// beside the answer; what it says at the end is the answer when there is no
// other.
func (a *answer) turn(s sdk.TaskStatus) (chunks []agentbus.Chunk, err error) {
	before := a.status
	a.status = s
	if s.Message == nil {
		return nil, nil
	}
	a.meter(s.Message.Metadata)
	switch s.State {
	case sdk.TaskStateCompleted:
		if a.said.Len() == 0 && a.tools == 0 && len(a.artifacts) == 0 {
			return a.whole(s.Message.Parts)
		}
	case sdk.TaskStateWorking, sdk.TaskStateSubmitted:
		if before.Message != nil && before.Message.ID == s.Message.ID {
			return nil, nil
		}
		if text, _, err := textOf(s.Message.Parts); err == nil && text != "" {
			return []agentbus.Chunk{{Reasoning: text + "\n"}}, nil
		}
	default:
	}
	return nil, nil
}

// whole passes parts on as the whole answer.
func (a *answer) whole(parts sdk.ContentParts) ([]agentbus.Chunk, error) {
	text, tools, err := textOf(parts)
	if err != nil {
		return nil, err
	}
	a.artifacts = []artifact{{text: text}}
	return append(a.say(), a.call(tools)...), nil
}

// snapshot takes a whole task: of its text only what is new is passed on.
func (a *answer) snapshot(t *sdk.Task) ([]agentbus.Chunk, error) {
	now := make([]artifact, 0, len(t.Artifacts))
	var called []agentbus.ToolCall
	for _, one := range t.Artifacts {
		if one == nil {
			continue
		}
		text, tools, err := textOf(one.Parts)
		if err != nil {
			return nil, err
		}
		now, called = append(now, artifact{one.ID, text}), append(called, tools...)
	}
	var chunks []agentbus.Chunk
	if len(now) > 0 || len(a.artifacts) > 0 && t.Status.State == sdk.TaskStateCompleted && a.message == nil {
		if len(now) > 0 { // a task that leaves its artifacts out takes none of them back
			a.artifacts = now
		}
		chunks = a.say()
		chunks = append(chunks, a.call(called[min(a.tools, len(called)):])...)
	}
	more, err := a.turn(t.Status)
	return append(chunks, more...), err
}

// update takes a piece of an artifact, or a new one (A34).
func (a *answer) update(e *sdk.TaskArtifactUpdateEvent) ([]agentbus.Chunk, error) {
	if e.Artifact == nil {
		return nil, nil
	}
	text, tools, err := textOf(e.Artifact.Parts)
	if err != nil {
		return nil, err
	}
	last := len(a.artifacts) - 1
	for i := range a.artifacts {
		if a.artifacts[i].id != e.Artifact.ID {
			continue
		}
		if !e.Append {
			a.artifacts[i].text = text
			return append(a.say(), a.call(tools)...), nil
		}
		a.artifacts[i].text += text
		if i == last { // the usual case: no need to look at all that was said
			a.said.WriteString(text)
			return append(a.chunk(text), a.call(tools)...), nil
		}
		return append(a.say(), a.call(tools)...), nil
	}
	a.artifacts = append(a.artifacts, artifact{e.Artifact.ID, text})
	return append(a.say(), a.call(tools)...), nil
}

// say passes on what of the artifacts was not; all of them, behind a void chunk,
// when what was said does not stand any more.
func (a *answer) say() []agentbus.Chunk {
	texts := make([]string, 0, len(a.artifacts))
	for _, one := range a.artifacts {
		if one.text != "" {
			texts = append(texts, one.text)
		}
	}
	all, said := strings.Join(texts, "\n"), a.said.String()
	a.said.Reset()
	a.said.WriteString(all)
	if rest, goesOn := strings.CutPrefix(all, said); goesOn {
		return a.chunk(rest)
	}
	a.tools = 0
	return []agentbus.Chunk{{Void: true, Text: all}}
}

func (a *answer) chunk(text string) []agentbus.Chunk {
	if text == "" {
		return nil
	}
	return []agentbus.Chunk{{Text: text}}
}

// call passes tool calls on.
func (a *answer) call(tools []agentbus.ToolCall) (chunks []agentbus.Chunk) {
	a.tools += len(tools)
	for i := range tools {
		chunks = append(chunks, agentbus.Chunk{ToolCall: &tools[i]})
	}
	return chunks
}

// meter reads what the answer took, where metadata tells it: as the bus does,
// under agentbus, or as models do, under usage.
func (a *answer) meter(meta map[string]any) {
	for _, told := range [...]any{metaAt(meta, MetadataKey, "usage"), metaAt(meta, "usage")} {
		raw, err := json.Marshal(told)
		if told == nil || err != nil {
			continue
		}
		var u struct {
			agentbus.Usage

			Prompt     int64           `json:"prompt_tokens"`
			Completion int64           `json:"completion_tokens"`
			Input      int64           `json:"inputTokens"` // as a face tells it
			Cached     int64           `json:"cachedTokens"`
			Output     int64           `json:"outputTokens"`
			Charged    agentbus.Micros `json:"costMicros"`
		}
		if json.Unmarshal(raw, &u) != nil || min(u.InputTokens, u.OutputTokens, u.CachedTokens, u.Prompt, u.Completion, u.Input, u.Cached, u.Output, int64(u.Cost), int64(u.Charged)) < 0 {
			continue
		}
		u.InputTokens, u.OutputTokens = max(u.InputTokens, u.Prompt, u.Input), max(u.OutputTokens, u.Completion, u.Output)
		u.CachedTokens, u.Cost = max(u.CachedTokens, u.Cached), max(u.Cost, u.Charged)
		a.usage = &u.Usage
		return
	}
}

// metaAt returns what stands at a path of nested metadata; nil: nothing.
func metaAt(meta map[string]any, path ...string) any {
	var v any = meta
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}
