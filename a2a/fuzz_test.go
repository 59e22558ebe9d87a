package a2a_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus/a2a"
)

// What agents write is read without a panic, and what is made of it is JSON.
func FuzzAnswers(f *testing.F) {
	f.Add(newCard)
	f.Add(oldCard)
	f.Add(`{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"},"metadata":{"usage":{}}}}}`)
	f.Add(`{"error":{"code":404,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}`)
	f.Add(`{"tasks":[{"id":"t"},1 ,{"id":"u"}],"result":{"totalSize":2,"tasks":[{"id":"\u0074"}]},"totalSize":{}}`)
	f.Add(`{"result":{"message":{"parts":[{"text":"\""}],"taskId":"t"},"id":"u","status":{}},"artifactUpdate":{"taskId":"v"}}`)
	f.Add(`{"result":{"kind":"artifact-update","artifact":{"parts":[{"text":"a\u00e9"},{"data":{}}]},"message":{}},"error":null}`)
	f.Add(`{"supportedInterfaces":[1,{"protocolBinding":"JSONRPC"}],"url":"http://\u212a/","capabilities":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		body := []byte(text)
		for _, b := range []a2a.Binding{a2a.JSONRPC, a2a.REST} {
			frame, valid := a2a.ReadFrame(body, b)
			if frame.Err != nil && (!json.Valid(frame.Err.Body(b, nil)) || frame.Err.Bus() == nil) {
				t.Fatalf("%+v", frame.Err)
			}
			tasksOf(t, body, b, frame.Tasks)
			if valid && frame.Err == nil {
				var whole, read a2a.Said
				whole.Hear(body, b)
				if read.HearFrame(&frame, body, b); read.Len() != whole.Len() {
					t.Fatalf("%s says %d bytes, and %d once it was read", text, whole.Len(), read.Len())
				}
			}
			if out, err := a2a.RewriteExtended(body, b, a2a.CardEdit{Base: "https://bus.example.com/a2a/x"}); err == nil && json.Valid(body) && !json.Valid(out) {
				t.Fatalf("%s became %s", text, out)
			}
		}
		card, err := a2a.RewriteCard(body, a2a.CardEdit{Base: "https://bus.example.com/a2a/x", Hosts: []string{"10.0.0.7:9002"}})
		if err != nil {
			return
		}
		for _, i := range a2a.Interfaces(card) {
			if !strings.HasPrefix(i.URL, "https://bus.example.com/a2a/x") {
				t.Fatalf("%s names %s", card, i.URL)
			}
		}
		if !json.Valid(card) || gjson.GetBytes(card, "signatures").Exists() {
			t.Fatalf("%s", card)
		}
		if !json.Valid(body) {
			return
		}
		event := string(a2a.Event(body))
		if s := (a2a.StreamID{ID: []byte(`"x"`)}); string(s.Feed([]byte(event)))+string(s.Flush()) == "" || strings.Count(event, "\n") != 2 {
			t.Fatalf("%q", event)
		}
	})
}

// tasksOf checks that what looks for tasks in answers that are not read whole finds
// those that are read there, and that a list stays JSON without its tasks.
func tasksOf(t *testing.T, body []byte, b a2a.Binding, read []a2a.TaskRef) {
	t.Helper()
	var seen []a2a.TaskRef
	finder := a2a.NewTaskFinder(b)
	for i := range body {
		seen = append(seen, finder.Feed(body[i:i+1])...)
	}
	if !json.Valid(body) {
		return
	}
	listed := false
	if out, _ := a2a.EditList(body, b, func(a2a.TaskRef) bool { listed = true; return true }); string(out) != string(body) {
		t.Fatalf("%s became %s", body, out)
	}
	for _, ref := range read {
		same := func(s a2a.TaskRef) bool { return s.ID == ref.ID }
		if !listed && len(ref.ID) < 1000 && (!finder.Named() || !slices.ContainsFunc(seen, same)) {
			t.Fatalf("%s names %q, and not %+v", body, ref.ID, seen)
		}
	}
	if out, left := a2a.EditList(body, b, func(a2a.TaskRef) bool { return false }); left != 0 || !json.Valid(a2a.SetTotal(out, b, 7)) {
		t.Fatalf("%s became %s", body, out)
	}
}
