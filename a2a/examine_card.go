package a2a

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
)

// A FoundCard is the card of an agent, as it was read.
type FoundCard struct {
	Raw   []byte
	At    *url.URL // where it stood
	Moved bool     // a redirect led there, which calls do not follow
}

// FetchCard reads the card of the agent at u. A u that
// names a JSON document, or a well-known place, is the card; of any other, what stands below it at
// .well-known/agent-card.json, then at the same place of the host, then where
// early versions of A2A had it. It fails as [Dialer.Fetch] does at the first of
// them.
func (d *Dialer) FetchCard(ctx context.Context, u *url.URL) (found FoundCard, err error) {
	bare := *u
	bare.RawQuery, bare.Fragment = "", ""
	root := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: "/"}
	places := []*url.URL{bare.JoinPath(".well-known", "agent-card.json"), root.JoinPath(".well-known", "agent-card.json"), bare.JoinPath(".well-known", "agent.json")}
	if strings.HasSuffix(u.Path, ".json") || strings.Contains(u.Path, "/.well-known/") {
		places = []*url.URL{u}
	}
	for i, at := range places {
		if i > 0 && at.String() == places[i-1].String() {
			continue
		}
		card, from, e := d.fetch(ctx, at, typeJSON)
		if e == nil {
			return FoundCard{card, from, from.String() != at.String()}, nil
		}
		if err == nil {
			err = e
		}
		if agentbus.CodeOf(e) == agentbus.CodeForbidden || ctx.Err() != nil {
			break
		}
	}
	return found, err
}

// ExamineRemote reports of an agent by the card of its address alone, which says
// less than its own card does.
func ExamineRemote(remote Remote) *CardReport {
	binding := map[string]Binding{TransportJSONRPC: JSONRPC, TransportJSON: REST}[remote.Transport]
	c := &remote.Card
	r := &CardReport{
		URL: remote.Endpoint.String(), Address: remote.Address.String(), Name: c.Name, Version: c.Version, Shape: "address", Chosen: -1,
		Streaming: c.A2A.Capabilities.Streaming, Skills: len(c.A2A.Skills), Usable: true,
		Interfaces: []InterfaceReport{{URL: remote.Endpoint.String(), Binding: string(binding), Version: "1.0", Usable: true, Called: true, Why: "by the card of its address"}},
		Extensions: []ExtensionReport{}, Schemes: []SchemeReport{}, Required: [][]string{}, Findings: []Finding{},
	}
	for _, x := range c.A2A.Capabilities.Extensions {
		r.Extensions = append(r.Extensions, ExtensionReport{URI: x.URI, Known: knownExtensions[x.URI]})
	}
	r.auth(c.A2A.Auth)
	return r
}

// auth reads what the card of an address says of authentication: names of HTTP
// schemes, of which any will do.
func (r *CardReport) auth(raw json.RawMessage) {
	var auth struct {
		Schemes []string `json:"schemes"`
	}
	if json.Unmarshal(raw, &auth) != nil {
		return
	}
	for _, name := range auth.Schemes {
		s := SchemeReport{Name: name, Kind: "http"}
		s.judge(wireScheme{Scheme: name})
		r.Schemes, r.Required = append(r.Schemes, s), append(r.Required, []string{name})
		if r.Chosen < 0 && s.Give != giveNothing {
			r.Chosen = len(r.Required) - 1
		}
	}
	if r.Usable = len(r.Required) == 0 || r.Chosen >= 0; !r.Usable {
		r.Findings = append(r.Findings, noWayIn)
	}
}
