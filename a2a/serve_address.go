package a2a

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A Published is an agent of this bus that others find by its address (C36).
type Published struct {
	Address    agentbus.Address
	Agent      string   // its configured name; it is called at /a2a/ and this
	Streaming  bool     // it answers in streams too
	Extensions []string // URIs of the extensions of A2A that it knows
}

// DirectoryConfig configures [NewDirectory].
type DirectoryConfig struct {
	// PublicURL is what links begin with; "": https and the domain of the address,
	// or the Host of a request that came to a host of that domain.
	PublicURL string
	Version   string // that cards tell; one that does not begin with a number is 0.0.0
	Agents    []Published
}

// A Directory tells everybody where the agents of this bus are: by WebFinger, and
// by the card of each address (C36). It is an http.Handler of
// /.well-known/webfinger and /.well-known/agent-card/{local}, for anybody, and
// safe for concurrent use.
type Directory struct {
	cfg  DirectoryConfig
	base *url.URL // nil: as the request says
}

const (
	webfingerPath = "/.well-known/webfinger"
	cardPath      = "/.well-known/agent-card/"
	directoryAge  = 300 // seconds for which others may keep what they were told
)

// NewDirectory returns a Directory. It fails for two agents of one address.
func NewDirectory(c DirectoryConfig) (*Directory, error) {
	d := &Directory{cfg: c}
	if c.PublicURL != "" {
		u, err := url.Parse(strings.TrimSuffix(c.PublicURL, "/"))
		if err != nil || !u.IsAbs() {
			return nil, errors.New("a2a: PublicURL is not an absolute URL")
		}
		d.base = u
	}
	first := map[string]string{}
	for _, p := range c.Agents {
		if other, twice := first[p.Address.Key()]; twice || p.Address.IsZero() {
			return nil, fmt.Errorf("a2a: agent %q has no address, or that of %q", p.Agent, other)
		}
		first[p.Address.Key()] = p.Agent
	}
	return d, nil
}

// ServeHTTP answers 404 for whom it does not know, and 400 for what is no
// question (RFC 7033).
func (d *Directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	local, card := strings.CutPrefix(r.URL.Path, cardPath)
	switch {
	case card:
		d.serveCard(w, r, local)
	case r.URL.Path == webfingerPath:
		d.serveWebFinger(w, r)
	default:
		httpx.WriteError(w, agentbus.Lineage{}, errNobody)
	}
}

var errNobody = &agentbus.Error{
	Code: agentbus.CodeAgentNotFound, Message: "there is no agent of that address here",
	Explain: &agentbus.Explain{Rule: "C36", Next: "ask the operator for the address of the agent"},
}

func (d *Directory) serveWebFinger(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	resource := query["resource"]
	if err != nil || len(resource) != 1 {
		httpx.WriteError(w, agentbus.Lineage{}, badQuestion("it needs one parameter named resource"))
		return
	}
	scheme, rest, found := strings.Cut(resource[0], ":")
	switch {
	case !found:
		httpx.WriteError(w, agentbus.Lineage{}, badQuestion("resource is not a URI; one of an agent begins with acct:"))
		return
	case !strings.EqualFold(scheme, "acct"): // as of any URI (RFC 3986, section 3.1)
		httpx.WriteError(w, agentbus.Lineage{}, errNobody)
		return
	}
	a, err := agentbus.ParseAddress("acct:" + rest)
	if err != nil {
		httpx.WriteError(w, agentbus.Lineage{}, err)
		return
	}
	at := slices.IndexFunc(d.cfg.Agents, func(p Published) bool { return p.Address.Equal(a) })
	if at < 0 {
		httpx.WriteError(w, agentbus.Lineage{}, errNobody)
		return
	}
	answer := d.describe(&d.cfg.Agents[at], r)
	if rels := query["rel"]; rels != nil {
		answer.Links = slices.DeleteFunc(answer.Links, func(l jrdLink) bool { return !slices.Contains(rels, l.Rel) })
	}
	serveJSON(w, r, typeJRD, answer)
}

func badQuestion(why string) error {
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "this is no question to WebFinger: " + why,
		Explain: &agentbus.Explain{Rule: "C36", Next: "ask for ?resource=acct: and the address"},
	}
}

// describe tells where p is. The order of the links is that of C36; the bus has
// neither a page nor a mailbox for its agents, so those two are never there.
func (d *Directory) describe(p *Published, r *http.Request) jrd {
	base := d.baseOf(p, r)
	return jrd{Subject: p.Address.Acct(), Links: []jrdLink{
		{Rel: "self", Type: typeJSON, Href: base + "/a2a/" + p.Agent + "/.well-known/agent-card.json"},
		{Rel: relCard, Type: typeJSON, Href: base + cardPath + p.Address.Local()},
	}}
}

// baseOf is what the links of p begin with. Whatever a request says of its host,
// they stay on the domain of the address, where others look for them (C35), and
// they are https but on this machine.
func (d *Directory) baseOf(p *Published, r *http.Request) string {
	if d.base != nil {
		return d.base.String()
	}
	u := url.URL{Scheme: "https", Host: p.Address.Domain()}
	if host, port := requestHost(r); onDomain(host, p.Address.Domain()) {
		if u.Host = host; port != "" {
			u.Host += ":" + port
		}
		if onDomain(host, "localhost") && r.TLS == nil {
			u.Scheme = "http"
		}
	}
	return u.String()
}

// requestHost is the host that r came to, in lower case, and its port; "" for one
// that is no name, of which a link could be made that leads elsewhere.
func requestHost(r *http.Request) (host, port string) {
	host = strings.ToLower(r.Host)
	if name, text, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(text, 10, 16); err != nil {
			return "", ""
		}
		host, port = name, text
	}
	if _, err := agentbus.ParseAddress("a@" + host); err != nil {
		return "", ""
	}
	return host, port
}

// serveCard serves the card of the address that begins with local. Of several
// it is that on the domain the request came to.
func (d *Directory) serveCard(w http.ResponseWriter, r *http.Request, local string) {
	var named []*Published
	for i := range d.cfg.Agents {
		if p := &d.cfg.Agents[i]; strings.EqualFold(p.Address.Local(), local) {
			named = append(named, p)
		}
	}
	if len(named) > 1 {
		host, _ := requestHost(r)
		named = slices.DeleteFunc(named, func(p *Published) bool { return !onDomain(host, p.Address.Domain()) })
		slices.SortFunc(named, func(p, q *Published) int { return len(q.Address.Domain()) - len(p.Address.Domain()) })
	}
	if len(named) == 0 {
		httpx.WriteError(w, agentbus.Lineage{}, errNobody)
		return
	}
	serveJSON(w, r, typeJSON, d.card(named[0], r))
}

// card is what others read of p before they call it.
func (d *Directory) card(p *Published, r *http.Request) AddressCard {
	extensions := make([]AddressExtension, len(p.Extensions))
	for i, uri := range p.Extensions {
		extensions[i].URI = uri
	}
	modes := []string{"text/plain"}
	version := strings.TrimPrefix(d.cfg.Version, "v")
	if version == "" || version[0] < '0' || version[0] > '9' { // of a build that is no release
		version = "0.0.0"
	}
	return AddressCard{
		Address: p.Address, Name: p.Agent, Version: version, ProtocolVersion: "0.1",
		A2A: AddressA2A{
			Endpoint: d.baseOf(p, r) + "/a2a/" + p.Agent, Transport: TransportJSONRPC,
			Capabilities: AddressCapabilities{Streaming: p.Streaming, Extensions: extensions},
			Skills:       []AddressSkill{{ID: p.Agent, Name: p.Agent, InputModes: modes, OutputModes: modes}},
			InputModes:   modes, OutputModes: modes, Auth: json.RawMessage(`{"schemes":["bearer"]}`),
		},
		Mentionable: Mentionable{SupportedInbound: []string{"a2a"}},
	}
}

// serveJSON writes v as JSON that anybody may keep for a while, and read from a page
// of any site (RFC 7033, section 5).
func serveJSON(w http.ResponseWriter, r *http.Request, kind string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		httpx.WriteError(w, agentbus.Lineage{}, err)
		return
	}
	sum := sha256.Sum256(body)
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", fmt.Sprintf("public, max-age=%d", directoryAge))
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	h.Set("X-Request-Id", httpx.NewRequestID())
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
