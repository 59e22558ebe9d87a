package a2a_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// send returns a JSON-RPC request with the metadata of its message and of its
// parameters.
func send(message, params string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","metadata":` + message + `},"metadata":` + params + `}}`)
}

func peeked(t *testing.T, body []byte) *a2a.Call {
	t.Helper()
	c, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return &c
}

// C4, C5, C14, X6: what a message says of its chain and of mentions, and copies
// that differ.
func TestReadMention(t *testing.T) {
	t.Parallel()
	chain := func(hop, most int) *agentbus.AgentChain {
		return &agentbus.AgentChain{Hop: hop, MaxHops: most, Final: hop == most}
	}
	const one = `{"mentionable":{"agent_chain":{"hop":1,"max_hops":4}}}`
	for name, c := range map[string]struct {
		message, params string
		want            a2a.Mention
		code            agentbus.Code
	}{
		"nothing":                 {message: `{}`, params: `{}`},
		"null":                    {message: `null`, params: `null`},
		"in the message":          {message: one, params: `{}`, want: a2a.Mention{Chain: chain(1, 4)}},
		"in the parameters":       {message: `{}`, params: one, want: a2a.Mention{Chain: chain(1, 4)}},
		"in both":                 {message: one, params: `{"mentionable":{"agent_chain":{"max_hops":4,"hop":1}}}`, want: a2a.Mention{Chain: chain(1, 4)}},
		"X6 unequal":              {message: one, params: `{"mentionable":{"agent_chain":{"hop":2,"max_hops":4}}}`, code: agentbus.CodeInvalidLineage},
		"in the capabilities":     {message: `{"mentionable":{"recipient_capabilities":{"agent_chain":{"hop":2,"max_hops":4}}}}`, params: `{}`, want: a2a.Mention{Chain: chain(2, 4)}},
		"X6 unequal copy":         {message: `{"mentionable":{"agent_chain":{"hop":1,"max_hops":4},"recipient_capabilities":{"agent_chain":{"hop":1,"max_hops":5}}}}`, params: `{}`, code: agentbus.CodeInvalidLineage},
		"X5 null":                 {message: `{"mentionable":{"agent_chain":null}}`, params: `{}`, code: agentbus.CodeInvalidLineage},
		"X5 hop 0":                {message: `{"mentionable":{"agent_chain":{"hop":0,"max_hops":4}}}`, params: `{}`, code: agentbus.CodeInvalidLineage},
		"C14 inline":              {message: `{"mentionable":{"recipient_capabilities":{"mention_relay":{"kind":"inline"}}}}`, params: `{}`, want: a2a.Mention{Relay: "inline"}},
		"C14 none as a text":      {message: `{"mentionable":{"recipient_capabilities":{"mention_relay":"none"}}}`, params: `{}`, want: a2a.Mention{Relay: "none"}},
		"C14 inline as a text":    {message: `{"mentionable":{"recipient_capabilities":{"mention_relay":"inline"}}}`, params: `{}`},
		"C14 unknown is kept":     {message: `{"mentionable":{"recipient_capabilities":{"mention_relay":{"kind":"new"}}}}`, params: `{}`, want: a2a.Mention{Relay: "new"}},
		"C14 too long a kind":     {message: `{"mentionable":{"recipient_capabilities":{"mention_relay":{"kind":"` + strings.Repeat("x", 1<<10) + `"}}}}`, params: `{}`},
		"token, policy, evidence": {message: `{"mentionable":{"chain_token":"a.b.c","policy":{"kind":"x"},"policy_resolution":{"y":1},"identity_evidence":[]}}`, params: `{}`, want: a2a.Mention{Token: "a.b.c", Policy: json.RawMessage(`{"kind":"x"}`), Resolution: json.RawMessage(`{"y":1}`), Evidence: json.RawMessage(`[]`)}},
		"two tokens":              {message: `{"mentionable":{"chain_token":"a.b.c"}}`, params: `{"mentionable":{"chain_token":"d.e.f"}}`, code: agentbus.CodeInvalidLineage},
	} {
		body := send(c.message, c.params)
		got, err := a2a.ReadMention(peeked(t, body), body)
		if agentbus.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", name, err, c.code)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" && err == nil {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if inline := got.Inline(); inline != (got.Relay == "inline") {
			t.Errorf("%s: inline %v", name, inline)
		}
	}
}

// C20: evidence goes, from wherever it stands, and nothing else does. A6: every
// other byte stays.
func TestC20StripEvidence(t *testing.T) {
	t.Parallel()
	const evidence = `"identity_evidence":[{"secret":1}]`
	for in, want := range map[[2]string][2]string{
		{`{"mentionable":{` + evidence + `}}`, `{}`}:                                                  {`{"mentionable":{}}`, `{}`},
		{`{"mentionable":{"a":1, ` + evidence + ` ,"verifiable_credentials":[2],"b":2},"x":3}`, `{}`}: {`{"mentionable":{"a":1, "b":2},"x":3}`, `{}`},
		{`{}`, `{"mentionable":{"verifiable_credentials":"x"},"identity_evidence":"not ours"}`}:       {`{}`, `{"mentionable":{},"identity_evidence":"not ours"}`},
		{`{"a":1}`, `null`}: {`{"a":1}`, `null`},
	} {
		body := send(in[0], in[1])
		got, found := a2a.StripEvidence(body, peeked(t, body))
		if diff := cmp.Diff(string(send(want[0], want[1])), string(got)); diff != "" || found != (in != want) {
			t.Errorf("%v found %v (-want +got):\n%s", in, found, diff)
		}
	}
}

// C4, C6: a chain that was bounded here stands in the message, once.
func TestSetMention(t *testing.T) {
	t.Parallel()
	m := a2a.Mention{Chain: &agentbus.AgentChain{Hop: 1, MaxHops: 4}, Token: "n.e.w", Evidence: json.RawMessage(`[1]`)}
	const set = `{"hop":1,"max_hops":4,"is_final":false}`
	for in, want := range map[[2]string][2]string{
		{`{"x402.payment.status":"y"}`, `{}`}: {`{"mentionable":{"identity_evidence":[1],"chain_token":"n.e.w","agent_chain":` + set + `},"x402.payment.status":"y"}`, `{}`},
		{`{"mentionable":{"agent_chain":{"hop":1,"max_hops":60},"recipient_capabilities":{"agent_chain":{"hop":1,"max_hops":60},"mention_relay":{"kind":"inline"}}}}`, `{"mentionable":{"agent_chain":{"hop":1,"max_hops":60},"chain_token":"o.l.d"}}`}: {
			`{"mentionable":{"identity_evidence":[1],"chain_token":"n.e.w","agent_chain":` + set + `,"recipient_capabilities":{"mention_relay":{"kind":"inline"}}}}`, `{"mentionable":{}}`,
		},
	} {
		body := send(in[0], in[1])
		c := peeked(t, body)
		got, err := a2a.SetMention(body, c, &m)
		if diff := cmp.Diff(string(send(want[0], want[1])), string(got)); diff != "" || err != nil {
			t.Errorf("%v: %v (-want +got):\n%s", in, err, diff)
		}
		read, err := a2a.ReadMention(peeked(t, got), got)
		if err != nil || *read.Chain != *m.Chain || read.Token != m.Token {
			t.Errorf("%s reads as %+v, %v", got, read, err)
		}
		without, err := a2a.SetMention(got, c, &a2a.Mention{})
		if err != nil || strings.Contains(string(without), "agent_chain") || strings.Contains(string(without), "n.e.w") {
			t.Errorf("cleared: %s, %v", without, err)
		}
	}
	if a2a.MentionMetadata(agentbus.Lineage{}, true) != nil {
		t.Error("a call without a chain has metadata")
	}
	written, err := json.Marshal(map[string]any{"mentionable": a2a.MentionMetadata(agentbus.Lineage{Chain: m.Chain, Hop: "t"}, true)})
	if err != nil {
		t.Fatal(err)
	}
	body := send(string(written), `{}`)
	if got, err := a2a.ReadMention(peeked(t, body), body); err != nil || *got.Chain != *m.Chain || !got.Inline() || got.Token != "t" {
		t.Errorf("%s reads as %+v, %v", written, got, err)
	}
}

// FuzzMention: whatever is in the metadata, nothing panics, evidence is gone when
// it was stripped, and the body stays JSON.
func FuzzMention(f *testing.F) {
	f.Add([]byte(`{"mentionable":{"agent_chain":{"hop":1,"max_hops":4},"identity_evidence":[{}]}}`))
	f.Add([]byte(`{"mentionable":{"recipient_capabilities":{"mention_relay":"none","agent_chain":[]}}}`))
	f.Fuzz(func(t *testing.T, metadata []byte) {
		body := send(string(metadata), "{}")
		c, err := a2a.Peek(a2a.JSONRPC, a2a.Method{}, body)
		if err != nil {
			return
		}
		stripped, _ := a2a.StripEvidence(body, &c)
		if !json.Valid(stripped) {
			t.Fatalf("%s became %s", body, stripped)
		}
		if m, err := a2a.ReadMention(&c, stripped); err == nil && m.Evidence != nil {
			t.Fatalf("%s keeps %s", stripped, m.Evidence)
		}
	})
}

// C15: where the texts of the seed contradict each other, it is as the table of the
// specification says; the rows on on_behalf_of and on audiences are tests of package
// identity (C21, C26, X14).
func TestC15Contradictions(t *testing.T) {
	t.Parallel()
	root := agentbus.RootChain(agentbus.DefaultMaxHops)
	first, err := root.Next()
	if err != nil || first.Hop != 1 || first.Final { // the first number is 1, at the root's dispatch
		t.Errorf("the first hop: %+v, %v", first, err)
	}
	second, err := first.Next()
	if err != nil || second.Hop != 2 || second.MaxHops != first.MaxHops || !strings.Contains(second.Render(), "2 hops remaining") { // hop rises, what remains falls
		t.Errorf("the second hop: %+v, %v", second, err)
	}
	for _, claimed := range []bool{true, false} { // is_final is derived, and never copied to a sibling
		orchestrator := agentbus.AgentChain{Hop: 3, MaxHops: 4, Final: claimed}
		sibling, err := orchestrator.Next()
		if claimed && agentbus.CodeOf(err) != agentbus.CodeChainFinal || !claimed && (err != nil || !sibling.Final) {
			t.Errorf("a sibling of a final %v orchestrator: %+v, %v", claimed, sibling, err)
		}
	}
	for relay, want := range map[string]string{`"none"`: "none", `{"kind":"none"}`: "none", `{"kind":"inline"}`: "inline", `"inline"`: ""} { // the string is read only
		body := send(`{"mentionable":{"recipient_capabilities":{"mention_relay":`+relay+`}}}`, "{}")
		if m, err := a2a.ReadMention(peeked(t, body), body); err != nil || m.Relay != want || m.Chain != nil { // no chain is a fresh call
			t.Errorf("%s: %+v, %v", relay, m, err)
		}
	}
	written, err := json.Marshal(a2a.MentionMetadata(agentbus.Lineage{Chain: &first}, false))
	if err != nil || !strings.Contains(string(written), `"mention_relay":{"kind":"none"}`) {
		t.Errorf("written %s, %v", written, err)
	}
}
