package a2a_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/a2a"
)

var cardAt = &url.URL{Scheme: "https", Host: "example.com", Path: "/card.json"}

// What of a card the bus can use, one trait a row; the whole report is tested
// where it is printed.
func TestExamine(t *testing.T) {
	t.Parallel()
	const iface = `"supportedInterfaces":[{"url":"https://example.com/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]`
	for _, tt := range []struct {
		name, card string
		usable     bool
		finding    string // a part of one, when there must be one
	}{
		{"plain", iface, true, ""},
		{"1.1", strings.Replace(iface, `"1.0"`, `"1.1"`, 1), true, ""},
		{"10.0", strings.Replace(iface, `"1.0"`, `"10.0"`, 1), false, "no interface"},
		{"0.2", strings.Replace(iface, `"1.0"`, `"0.2.6"`, 1), false, "no interface"},
		{"0.30", strings.Replace(iface, `"1.0"`, `"0.30"`, 1), false, "no interface"},
		{"binding in lower case", strings.Replace(iface, "JSONRPC", "jsonrpc", 1), true, ""},
		{"user in the URL", strings.Replace(iface, "https://", "https://u:p@", 1), false, "no interface"},
		{"file", strings.Replace(iface, "https://", "file://", 1), false, "no interface"},
		{"a known extension", iface + `,"capabilities":{"extensions":[{"uri":"https://mentionable.dev/ns/identity/v0.1","required":true}]}`, true, ""},
		{"an unknown one that is not required", iface + `,"capabilities":{"extensions":[{"uri":"https://e.example"}]}`, true, ""},
		{"an unknown one that is", iface + `,"capabilities":{"extensions":[{"uri":"https://e.example","required":true}]}`, false, "extension that this bus does not know"},
		{"no security", iface + `,"securityRequirements":[]`, true, ""},
		{"or none", iface + `,"securitySchemes":{"m":{"mtlsSecurityScheme":{}}},"securityRequirements":[{"schemes":{"m":[]}},{}]`, true, ""},
		{"both of two", iface + `,"securitySchemes":{"m":{"type":"mutualTLS"},"b":{"type":"http","scheme":"bearer"}},"security":[{"m":[],"b":[]}]`, false, "none of the ways"},
		{"key in Authorization", iface + `,"securitySchemes":{"k":{"type":"apiKey","in":"header","name":"Authorization"}},"security":[{"k":[]}]`, true, ""},
		{"openIdConnect", iface + `,"securitySchemes":{"k":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://x"}}},"securityRequirements":[{"schemes":{"k":{"list":[]}}}]`, true, ""},
		{"a binding of three", strings.Replace(iface, "[{", `[{"url":"x","protocolBinding":"GRPC","protocolVersion":"1.0"},{"url":"https://example.com/r","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},{`, 1), true, ""},
	} {
		r, ok := a2a.Examine([]byte("{"+tt.card+"}"), cardAt)
		if !ok || r.Usable != tt.usable || tt.finding != "" && !slices.ContainsFunc(r.Findings, func(f a2a.Finding) bool { return f.Blocks && strings.Contains(f.What, tt.finding) }) {
			t.Errorf("%s: %+v", tt.name, r)
		}
		if called := slices.ContainsFunc(r.Interfaces, func(f a2a.InterfaceReport) bool { return f.Called && f.Usable }); !called && r.Usable {
			t.Errorf("%s: usable, and nothing is called", tt.name)
		}
	}
	twins := []string{`,"supportedInterfaces":[]`, `,"SupportedInterfaces":[]`}
	for _, more := range twins {
		r, ok := a2a.Examine([]byte("{"+iface+more+"}"), cardAt)
		if !ok || !slices.ContainsFunc(r.Findings, func(f a2a.Finding) bool { return strings.Contains(f.What, "stands twice") }) {
			t.Errorf("%s: %+v", more, r)
		}
	}
	for _, text := range []string{"", "x", "[]", "null", `"card"`, "{}", `{"swagger":"2.0","info":{}}`} {
		if r, ok := a2a.Examine([]byte(text), cardAt); ok || r != nil {
			t.Errorf("%q is a card: %+v", text, r)
		}
	}
}

// The card of an address tells less, and how to authenticate all the same.
func TestExamineRemote(t *testing.T) {
	t.Parallel()
	for auth, want := range map[string]bool{"": true, `{"schemes":[]}`: true, `{"schemes":["bearer"]}`: true, `{"schemes":["digest","Bearer"]}`: true, `{"schemes":["digest"]}`: false, `"x"`: true} {
		r := a2a.ExamineRemote(a2a.Remote{Address: address(t, "@a@example.com"), Endpoint: cardAt, Transport: a2a.TransportJSON, Card: a2a.AddressCard{Name: "A", A2A: a2a.AddressA2A{Auth: []byte(auth)}}})
		if r.Usable != want || r.Interfaces[0].Binding != "HTTP+JSON" || !r.Interfaces[0].Called || strings.Contains(auth, "earer") != (r.Chosen >= 0) {
			t.Errorf("%s: %+v", auth, r)
		}
	}
}

// No card makes the examination fail, and what it calls it can use.
func FuzzExamine(f *testing.F) {
	f.Add(`{"name":"x","supportedInterfaces":[{"url":"https://example.com","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"skills":[{}]}`)
	f.Add(`{"url":"http://h/","preferredTransport":"GRPC","additionalInterfaces":[{"transport":"JSONRPC","url":"http://[::1"}],"security":[{"a":[]}],"securitySchemes":{"a":{"type":"apiKey","in":"cookie","name":"c"}}}`)
	f.Add(`{"name":null,"capabilities":{"extensions":[{"required":true}]},"securitySchemes":{"a":{"scheme":{"$case":"mtlsSecurityScheme","value":null}}},"securityRequirements":[{"schemes":null}]}`)
	f.Add(`{"supportedInterfaces":[null,7,{"url":7}],"securitySchemes":{"a":null,"b":{"httpAuthSecurityScheme":null,"apiKeySecurityScheme":{}}},"skills":[null]}`)
	f.Fuzz(func(t *testing.T, card string) {
		r, ok := a2a.Examine([]byte(card), cardAt)
		if !ok {
			return
		}
		if r.Chosen >= len(r.Required) {
			t.Errorf("%d of %v is chosen", r.Chosen, r.Required)
		}
		for _, i := range r.Interfaces {
			if u, err := url.Parse(i.URL); i.Called && (!i.Usable || err != nil || u.User != nil || u.Host == "") {
				t.Errorf("%+v is called", i)
			}
		}
	})
}
