package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/agentbus/agentbus"
)

const (
	remoteFresh = 300 * time.Second // how long an address is not asked about again (C35)
	failedFresh = 10 * time.Second  // the same for one that could not be resolved
	manyRemotes = 1000              // addresses that are remembered, and as many failed ones
)

// The ways to call an agent that a card of an address names.
const (
	TransportJSONRPC = "https+jsonrpc"
	TransportJSON    = "https+json"
)

// An AddressCard is what an address leads to (C36): who the agent is and where
// it is called. It is not the agent card of A2A, which stands at the agent.
type AddressCard struct {
	Address         agentbus.Address `json:"address"`
	Name            string           `json:"name"`
	Version         string           `json:"version"`
	ProtocolVersion string           `json:"protocol_version"`
	A2A             AddressA2A       `json:"a2a"`
	Mentionable     Mentionable      `json:"mentionable"`
}

// AddressA2A is how an agent is called.
type AddressA2A struct {
	Endpoint     string              `json:"endpoint"`
	Transport    string              `json:"transport"` // TransportJSONRPC, TransportJSON, or another's
	Capabilities AddressCapabilities `json:"capabilities"`
	Skills       []AddressSkill      `json:"skills"`
	InputModes   []string            `json:"input_modes"`
	OutputModes  []string            `json:"output_modes"`
	Auth         json.RawMessage     `json:"auth,omitempty"` // whoever reads it knows the scheme
}

// AddressCapabilities are what an agent can do beside answering.
type AddressCapabilities struct {
	Streaming  bool               `json:"streaming"`
	Extensions []AddressExtension `json:"extensions"`
}

// An AddressExtension is an extension of A2A that an agent knows.
type AddressExtension struct {
	URI string `json:"uri"`
}

// An AddressSkill is a thing that an agent can do.
type AddressSkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	InputModes  []string `json:"input_modes"`
	OutputModes []string `json:"output_modes"`
}

// Mentionable says by which ways an agent is reached under its address.
type Mentionable struct {
	SupportedInbound []string `json:"supported_inbound"`
}

// A Remote is an agent that an address led to. Its endpoint is on the domain of
// the address.
type Remote struct {
	Address  agentbus.Address // as its card writes it
	Endpoint *url.URL         // not to be changed
	// Transport is TransportJSONRPC or TransportJSON.
	Transport string
	Card      AddressCard
}

// ResolverConfig configures [NewResolver].
type ResolverConfig struct {
	Dialer  *Dialer          // required
	Domains []string         // whose addresses are resolved; none: nobody's
	Now     func() time.Time // nil: time.Now
}

// A Resolver finds the agents of other organisations by their addresses (C35).
// It asks nobody about a domain that is not among its domains. It is safe for
// concurrent use; who asks for an address that is being resolved waits for that.
type Resolver struct {
	cfg    ResolverConfig
	flight singleflight.Group
	good   *lru.Cache[string, resolved]
	failed *lru.Cache[string, resolved] // apart, so that made-up addresses cannot push good ones out
}

type resolved struct {
	remote Remote
	err    error
	until  time.Time
}

// NewResolver returns a Resolver. It fails for a domain that no address can
// have.
func NewResolver(c ResolverConfig) (*Resolver, error) {
	if c.Dialer == nil {
		return nil, errors.New("a2a: Dialer is required")
	}
	c.Domains = slices.Clone(c.Domains)
	for _, d := range c.Domains {
		if a, err := agentbus.ParseAddress("a@" + d); err != nil || a.Domain() != d {
			return nil, fmt.Errorf("a2a: %q is not the domain of an address", d)
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	r := &Resolver{cfg: c}
	r.good, _ = lru.New[string, resolved](manyRemotes) // fails for a size that is not positive
	r.failed, _ = lru.New[string, resolved](manyRemotes)
	return r, nil
}

// Knows reports whether addresses of a's domain are resolved. It asks nobody.
func (r *Resolver) Knows(a agentbus.Address) bool {
	return !a.IsZero() && slices.Contains(r.cfg.Domains, a.Domain())
}

// Resolve returns the agent at a. What was found counts for 300 seconds, a
// failure for 10. It fails with CodeAgentNotFound for a domain that is not
// resolved and for an agent that is not there, with CodeForbidden where C33 or
// C35 refuse what a leads to, and with CodeAgentUnavailable when its domain does
// not answer as it should. It takes at most 10 seconds, also for a caller whose
// context ends before, and no message names an address.
func (r *Resolver) Resolve(ctx context.Context, a agentbus.Address) (Remote, error) {
	if !r.Knows(a) {
		return Remote{}, &agentbus.Error{
			Code: agentbus.CodeAgentNotFound, Message: "addresses of that domain are not resolved here",
			Explain: &agentbus.Explain{Rule: "C35", Observed: a.Domain(), Next: "its operator adds the domain to resolver.domains"},
		}
	}
	key := a.Key()
	if got, ok := r.remembered(key); ok {
		return got.remote, got.err
	}
	v, _, _ := r.flight.Do(key, func() (any, error) {
		if got, ok := r.remembered(key); ok { // by the flight before
			return got, nil
		}
		return r.ask(context.WithoutCancel(ctx), key, a), nil // others wait for it too
	})
	got, _ := v.(resolved)
	return got.remote, got.err
}

func (r *Resolver) remembered(key string) (resolved, bool) {
	for _, cache := range []*lru.Cache[string, resolved]{r.good, r.failed} {
		if got, ok := cache.Get(key); ok && r.cfg.Now().Before(got.until) {
			return got, true
		}
	}
	return resolved{}, false
}

func (r *Resolver) ask(ctx context.Context, key string, a agentbus.Address) (got resolved) {
	got.remote, got.err = r.cfg.Dialer.find(ctx, a)
	if got.err != nil {
		got.until = r.cfg.Now().Add(failedFresh)
		r.failed.Add(key, got)
		return got
	}
	got.until = r.cfg.Now().Add(remoteFresh)
	r.good.Add(key, got)
	return got
}

// find asks for the agent at a, and believes what its domain vouches for.
func (d *Dialer) find(ctx context.Context, a agentbus.Address) (Remote, error) {
	at, err := d.webfinger(ctx, a)
	if err != nil {
		return Remote{}, err
	}
	body, err := d.Fetch(ctx, at, typeJSON)
	if err != nil {
		return Remote{}, err
	}
	var card AddressCard
	if err := json.Unmarshal(body, &card); err != nil {
		return Remote{}, unreadable(at, "it is no agent card", err)
	}
	endpoint, err := url.Parse(card.A2A.Endpoint)
	switch {
	case !card.Address.Equal(a):
		return Remote{}, mismatch("the agent card of " + a.Domain() + " is of another address")
	case err != nil || !endpoint.IsAbs():
		return Remote{}, unreadable(at, "its endpoint is no URL", err)
	case !onDomain(endpoint.Hostname(), a.Domain()):
		return Remote{}, mismatch("the agent card of " + a.Domain() + " names an endpoint on another domain")
	case card.A2A.Transport != TransportJSONRPC && card.A2A.Transport != TransportJSON:
		return Remote{}, unreadable(at, "its transport is neither "+TransportJSONRPC+" nor "+TransportJSON, nil)
	}
	if err := d.Check(endpoint); err != nil {
		return Remote{}, err
	}
	return Remote{Address: card.Address, Endpoint: endpoint, Transport: card.A2A.Transport, Card: card}, nil
}

// onDomain reports whether host is domain or below it.
func onDomain(host, domain string) bool {
	host = strings.ToLower(host)
	return host == domain || strings.HasSuffix(host, "."+domain)
}
