package a2a

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

// The members of Mentionable in metadata (C4, C16, C20, C28).
const (
	mentionable        = "mentionable"
	memberChain        = "agent_chain"
	memberCapabilities = "recipient_capabilities"
	memberToken        = "chain_token"
	memberEvidence     = "identity_evidence"
	memberCredentials  = "verifiable_credentials" //nolint:gosec // the name of a member
	memberRelay        = "mention_relay"
	memberPolicy       = "policy"
	memberResolution   = "policy_resolution"
	relayNone          = "none"
	relayInline        = "inline"
	maxRelay           = 64 // bytes of the kind of a relay
)

// A Mention is what the metadata of a request says in the words of Mentionable.
type Mention struct {
	Chain *agentbus.AgentChain // as it is claimed (C5); nil: there is none
	// Relay is how the recipient brings other agents in (C14): "inline" when who
	// dispatches relays mentions, else it calls them itself. "": nothing was said.
	Relay      string
	Token      string          // a signed hop (C16); "": there is none
	Evidence   json.RawMessage // of identity, a list (C20); nil: there is none. It is stored, logged and forwarded by nobody
	Policy     json.RawMessage // what is asked for (C28), an object or a list; nil: nothing
	Resolution json.RawMessage // the answer to a policy part (C28); nil: there is none
}

// Inline reports whether mentions in the reply are relayed (C14). A kind that is
// not known is kept, and is none.
func (m *Mention) Inline() bool { return m.Relay == relayInline }

// ReadMention reads the metadata of a request that [Peek] has read: that of its
// message and of its parameters. Whatever stands in both must be equal as JSON,
// and so must the copies of a chain (C4): otherwise, and for a chain that is none
// (C5), it fails with CodeInvalidLineage.
func ReadMention(c *Call, body []byte) (m Mention, err error) {
	var roots []gjson.Result
	for _, path := range mentionPaths(c) {
		if r := gjson.GetBytes(body, gjsonPath(path)); r.IsObject() {
			roots = append(roots, r)
		}
	}
	if len(roots) == 0 {
		return m, nil
	}
	var chains [][]byte
	for _, r := range roots {
		chains = append(chains, rawOf(r, memberChain), rawOf(r, memberCapabilities, memberChain))
	}
	chain, found, err := agentbus.ParseAgentChains(chains...)
	if err != nil {
		return m, err
	}
	if found {
		m.Chain = &chain
	}
	var relay, token []byte
	for _, one := range []struct {
		into *[]byte
		path []string
	}{
		{&relay, []string{memberCapabilities, memberRelay}},
		{&token, []string{memberToken}},
		{(*[]byte)(&m.Evidence), []string{memberEvidence}},
		{(*[]byte)(&m.Policy), []string{memberPolicy}},
		{(*[]byte)(&m.Resolution), []string{memberResolution}},
	} {
		for _, r := range roots {
			got := rawOf(r, one.path...)
			if got != nil && *one.into != nil && !sameJSON(got, *one.into) {
				return m, notEqual(one.path[len(one.path)-1])
			}
			if got != nil {
				*one.into = got
			}
		}
	}
	if t := gjson.ParseBytes(token); t.Exists() && t.Type != gjson.String {
		return m, &agentbus.Error{
			Code: agentbus.CodeInvalidLineage, Message: "the " + memberToken + " in the metadata is no text",
			Explain: &agentbus.Explain{Rule: "C16", Next: "send the signed hop as a compact JWS, or none"},
		}
	}
	m.Relay, m.Token = relayOf(relay), gjson.ParseBytes(token).Str
	return m, nil
}

func notEqual(member string) error {
	return &agentbus.Error{
		Code: agentbus.CodeInvalidLineage, Message: "the copies of " + member + " in the metadata of the message and of the parameters differ",
		Explain: &agentbus.Explain{Rule: "C4", Observed: member, Next: "send it once, in the metadata of the message"},
	}
}

// relayOf reads how mentions are relayed: {kind}, or "none" as a text (C14).
func relayOf(raw []byte) string {
	r := gjson.ParseBytes(raw)
	if r.IsObject() {
		r = r.Get("kind")
	} else if r.Str != relayNone {
		return ""
	}
	if r.Type != gjson.String || len(r.Str) > maxRelay {
		return ""
	}
	return r.Str
}

// mentionPaths returns where Mentionable may stand in a request: the message
// first.
func mentionPaths(c *Call) [][]string {
	own := (&Call{Binding: c.Binding}).MetadataPath(mentionable)
	if !c.HasMessage {
		return [][]string{own}
	}
	return [][]string{c.MetadataPath(mentionable), own}
}

// rawOf returns a member of an object as it stands there; nil when it does not,
// or is null.
func rawOf(r gjson.Result, path ...string) []byte {
	for _, name := range path {
		if !r.IsObject() {
			return nil
		}
		r = r.Get(gjson.Escape(name))
	}
	if !r.Exists() || r.Type == gjson.Null && path[len(path)-1] != memberChain {
		return nil
	}
	return []byte(r.Raw)
}

func sameJSON(a, b []byte) bool {
	read := func(raw []byte) (v any) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		_ = dec.Decode(&v) // of a body that is valid
		return v
	}
	return reflect.DeepEqual(read(a), read(b))
}

// StripEvidence returns body without its evidence of identity and its verifiable
// credentials, wherever they stand (C20), and whether there were any. Every other
// byte is as it came.
func StripEvidence(body []byte, c *Call) (stripped []byte, found bool) {
	stripped = body
	for _, path := range mentionPaths(c) {
		for _, member := range [...]string{memberEvidence, memberCredentials} {
			if !gjson.GetBytes(stripped, gjsonPath(append(path, member))).Exists() {
				continue
			}
			without, err := Set(stripped, nil, append(path, member)...)
			if err == nil {
				stripped, found = without, true
			}
		}
	}
	return stripped, found
}

// StripToken returns body without its signed hop (C16): it is for this receiver
// only.
func StripToken(body []byte, c *Call) (_ []byte, err error) {
	for _, path := range mentionPaths(c) {
		if gjson.GetBytes(body, gjsonPath(append(path, memberToken))).Exists() {
			if body, err = Set(body, nil, append(path, memberToken)...); err != nil {
				return nil, err
			}
		}
	}
	return body, nil
}

// SetMention returns body with what m says in the metadata of its message, in
// place of what stood there, and no copy of it anywhere else. What m does not
// say stays as it is, but for a chain and a signed hop: they are of one hop.
// Every other byte is as it came.
func SetMention(body []byte, c *Call, m *Mention) (_ []byte, err error) {
	paths := mentionPaths(c)
	values := map[string][]byte{memberChain: nil, memberToken: nil}
	if m.Chain != nil {
		values[memberChain], _ = json.Marshal(m.Chain) // numbers
	}
	if m.Token != "" {
		values[memberToken], _ = json.Marshal(m.Token)
	}
	if m.Evidence != nil {
		values[memberEvidence] = m.Evidence
	}
	for _, name := range [...]string{memberChain, memberToken, memberEvidence} {
		value, said := values[name]
		for i, path := range paths {
			if i > 0 {
				value = nil // no copy: it could be another one some day
			}
			if said && (value != nil || gjson.GetBytes(body, gjsonPath(append(path, name))).Exists()) {
				if body, err = Set(body, value, append(path, name)...); err != nil {
					return nil, err
				}
			}
			copied := append(append([]string(nil), path...), memberCapabilities, memberChain)
			if name == memberChain && gjson.GetBytes(body, gjsonPath(copied)).Exists() {
				if body, err = Set(body, nil, copied...); err != nil {
					return nil, err
				}
			}
		}
	}
	return body, nil
}

// MentionMetadata returns what stands under "mentionable" in the metadata of a
// message that a client of ours sends for a call (C4, C14); nil when there is
// nothing to say. inline tells the recipient that its mentions are relayed.
func MentionMetadata(l agentbus.Lineage, inline bool) map[string]any {
	if l.Chain == nil {
		return nil
	}
	kind := relayNone
	if inline {
		kind = relayInline
	}
	m := map[string]any{
		memberChain:        map[string]any{"hop": float64(l.Chain.Hop), "max_hops": float64(l.Chain.MaxHops), "is_final": l.Chain.Final},
		memberCapabilities: map[string]any{memberRelay: map[string]any{"kind": kind}},
	}
	if l.Hop != "" {
		m[memberToken] = l.Hop
	}
	return m
}
