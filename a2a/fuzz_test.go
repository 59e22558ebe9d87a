package a2a_test

import (
	"encoding/json"
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
	f.Add(`{"supportedInterfaces":[1,{"protocolBinding":"JSONRPC"}],"url":"http://\u212a/","capabilities":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		body := []byte(text)
		for _, b := range []a2a.Binding{a2a.JSONRPC, a2a.REST} {
			frame, _ := a2a.ReadFrame(body, b)
			if frame.Err != nil && (!json.Valid(frame.Err.Body(b, nil)) || frame.Err.Bus() == nil) {
				t.Fatalf("%+v", frame.Err)
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
