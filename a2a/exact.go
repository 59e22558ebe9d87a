package a2a

import (
	"bytes"
	"encoding/json"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
)

// An exactPart is what of a part the SDK reads numbers of.
type exactPart struct {
	Data     any            `json:"data"`
	Metadata map[string]any `json:"metadata"`
}

// An exactly is what of a message, or of an artifact, the SDK reads numbers of.
type exactly struct {
	Metadata map[string]any `json:"metadata"`
	Parts    []exactPart    `json:"parts"`
}

// in gives metadata and parts their numbers back.
func (e *exactly) in(metadata *map[string]any, parts sdk.ContentParts) {
	*metadata = e.Metadata
	for i, p := range parts {
		if p == nil || i >= len(e.Parts) {
			continue
		}
		p.Metadata = e.Parts[i].Metadata
		if _, data := p.Content.(sdk.Data); data {
			p.Content = sdk.Data{Value: e.Parts[i].Data}
		}
	}
}

// exact reads JSON with its numbers as they are written.
func exact(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(into)
}

// unrounded gives a task the numbers that are stored: the SDK rounds them, and nobody
// edits an offer, what is to be signed, or what was signed, while the task waits or
// when it is over (C19, C32).
func unrounded(t *sdk.Task, stored []byte) {
	var told struct {
		Status struct {
			Message exactly `json:"message"`
		} `json:"status"`
		History   []exactly      `json:"history"`
		Artifacts []exactly      `json:"artifacts"`
		Metadata  map[string]any `json:"metadata"`
	}
	if exact(stored, &told) != nil {
		return
	}
	t.Metadata = told.Metadata
	if m := t.Status.Message; m != nil {
		told.Status.Message.in(&m.Metadata, m.Parts)
	}
	for i, m := range t.History {
		if m != nil && i < len(told.History) {
			told.History[i].in(&m.Metadata, m.Parts)
		}
	}
	for i, a := range t.Artifacts {
		if a != nil && i < len(told.Artifacts) {
			told.Artifacts[i].in(&a.Metadata, a.Parts)
		}
	}
}

// asSent returns a message of a request with the numbers that stand there.
func asSent(m *sdk.Message, params []byte) *sdk.Message {
	var said struct {
		Message exactly `json:"message"`
	}
	if exact(params, &said) != nil || len(said.Message.Parts) != len(m.Parts) { // a message of 0.3 stands elsewhere
		return m
	}
	out := *m
	out.Parts = make(sdk.ContentParts, len(m.Parts))
	for i, p := range m.Parts {
		one := *p
		out.Parts[i] = &one
	}
	said.Message.in(&out.Metadata, out.Parts)
	return &out
}
