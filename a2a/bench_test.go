package a2a_test

import (
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// BenchmarkSend is what is read and written of a send, on its way to the agent
// and back.
func BenchmarkSend(b *testing.B) {
	body := []byte(`{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"0-17","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`)
	answer := []byte(`{"jsonrpc":"2.0","id":"1","result":{"task":{"id":"task-17","contextId":"ctx","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"` +
		strings.Repeat("word ", 100) + `"}]}]}}}`)
	l := agentbus.Lineage{Run: "run_0199c2f0-7a7b-7ccc-8ddd-eeeeeeeeeeee", Depth: 1}
	l.Turn = l.Run.Turn(0, "peer")
	call, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, body)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("peek", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = a2a.Peek(a2a.JSONRPC, a2a.Method{}, body)
		}
	})
	b.Run("stamp", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = a2a.Set(body, a2a.LineageMetadata(l), call.MetadataPath(a2a.MetadataKey)...)
		}
	})
	b.Run("answer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a2a.ReadFrame(answer, a2a.JSONRPC)
		}
	})
	b.Run("endpoint", func(b *testing.B) {
		named := []a2a.Interface{{URL: "http://127.0.0.1:9/rpc", Binding: a2a.JSONRPC, Version: "1.0"}}
		b.ReportAllocs()
		for b.Loop() {
			a2a.Endpoint(named, a2a.JSONRPC, "")
		}
	})
}
