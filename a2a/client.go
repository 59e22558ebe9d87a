package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/agentbus/agentbus"
)

const (
	maxCard     = 256 << 10
	cardTimeout = 5 * time.Second
	cardAge     = 5 * time.Minute // until it is fetched again
)

// A peer is an agent as its card describes it.
type peer struct {
	client    *a2aclient.Client
	streaming bool
}

// peer returns the agent, and fetches its card when it is not known, or old. A
// card that cannot be fetched again is used on.
func (b *Backend) peer(ctx context.Context) (*peer, error) {
	b.mu.Lock()
	found, at := b.found, b.foundAt
	b.mu.Unlock()
	if found != nil && time.Since(at) < cardAge {
		return found, nil
	}
	fresh, err := b.find(ctx)
	if err != nil {
		if found != nil && ctx.Err() == nil {
			return found, nil
		}
		return nil, err
	}
	b.mu.Lock()
	b.found, b.foundAt = fresh, time.Now()
	b.mu.Unlock()
	return fresh, nil
}

func (b *Backend) find(ctx context.Context) (*peer, error) {
	card, err := b.card(ctx)
	if err != nil {
		return nil, err
	}
	at, err := b.choose(card)
	if err != nil {
		return nil, err
	}
	only := *card
	only.SupportedInterfaces = []*sdk.AgentInterface{at} // the first of the card, not the SDK's choice (A37)
	client, err := a2aclient.NewFromCard(ctx, &only, a2aclient.WithDefaultsDisabled(),
		a2aclient.WithJSONRPCTransport(b.http), a2aclient.WithRESTTransport(b.http))
	if err != nil {
		return nil, unusable("the agent's card cannot be used", err)
	}
	return &peer{client: client, streaming: card.Capabilities.Streaming}, nil
}

func unusable(message string, err error) error {
	return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: message, Err: err}
}

// bare is an agent without a card that can be used: a JSON-RPC endpoint that
// streams.
func (b *Backend) bare() *sdk.AgentInterface {
	return &sdk.AgentInterface{URL: b.url.String(), ProtocolBinding: sdk.TransportProtocolJSONRPC, ProtocolVersion: sdk.Version}
}

// whole reports whether the configured URL is that of the card itself.
func (b *Backend) whole() bool { return !b.config.Endpoint && strings.HasSuffix(b.url.Path, ".json") }

// card fetches the agent's card: from below its URL or, unless that is known to
// be its endpoint, from the root of the host. An agent without one is taken for a JSON-RPC endpoint that streams.
func (b *Backend) card(ctx context.Context) (card *sdk.AgentCard, err error) {
	ctx, cancel := context.WithTimeout(WithHeader(context.WithValue(ctx, talkKey{}, (*talk)(nil)), nil), cardTimeout) // a card is no call, and nobody's own
	defer cancel()
	at := *b.url
	paths := []string{strings.TrimSuffix(at.Path, "/") + CardPath, CardPath}
	switch {
	case b.whole():
		paths = []string{at.Path}
	case b.config.Endpoint:
		paths = paths[:1]
	}
	for _, path := range slices.Compact(paths) {
		at.Path, at.RawPath = path, ""
		card, err = b.fetch(ctx, at.String())
		if e, told := errors.AsType[*agentbus.Error](err); !told || e.Status != http.StatusNotFound {
			return card, err
		}
	}
	if b.whole() {
		return nil, err
	}
	return &sdk.AgentCard{SupportedInterfaces: []*sdk.AgentInterface{b.bare()}, Capabilities: sdk.AgentCapabilities{Streaming: true}}, nil
}

func (b *Backend) fetch(ctx context.Context, at string) (*sdk.AgentCard, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := b.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("fetch the agent's card: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // what could fail has been read
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxCard+1))
	switch {
	case err != nil:
		return nil, unusable("the agent's card could not be read", err)
	case len(raw) > maxCard:
		return nil, unusable("the agent's card is larger than 256 KiB", nil)
	}
	return readCard(raw)
}

// readCard reads what calls need of a card, and nothing else: other SDKs write
// some of the rest in ways that this one refuses, such as the security schemes
// of the one for JavaScript (A10).
func readCard(raw []byte) (*sdk.AgentCard, error) {
	var members map[string]json.RawMessage // spelt exactly as A2A has them
	var card sdk.AgentCard
	var able struct {
		Streaming bool `json:"streaming"`
	}
	err := json.Unmarshal(raw, &members)
	for name, into := range map[string]any{"supportedInterfaces": &card.SupportedInterfaces, "capabilities": &able} {
		if member := members[name]; err == nil && member != nil {
			err = json.Unmarshal(member, into)
		}
	}
	if err != nil {
		return nil, unusable("the agent's card is no agent card of A2A 1.0", err)
	}
	card.Capabilities.Streaming = able.Streaming
	return &card, nil
}

// choose returns the first interface of a card that we speak (A37). One on
// another host is not called, since the operator trusted this one with
// credentials (P24): the configured URL is, unless it is that of the card.
func (b *Backend) choose(card *sdk.AgentCard) (*sdk.AgentInterface, error) {
	var offered []string
	for _, at := range card.SupportedInterfaces {
		if at == nil {
			continue
		}
		offered = append(offered, string(at.ProtocolBinding)+" "+string(at.ProtocolVersion))
		known := at.ProtocolBinding == sdk.TransportProtocolJSONRPC || at.ProtocolBinding == sdk.TransportProtocolHTTPJSON
		if !known || !isVersion1(string(at.ProtocolVersion)) {
			continue
		}
		u, err := url.Parse(at.URL)
		elsewhere := err != nil || u.Scheme != b.url.Scheme || u.Host != b.url.Host || b.config.Endpoint && !b.isEndpoint(at)
		if elsewhere && !b.whole() {
			return b.bare(), nil
		}
		if elsewhere {
			return nil, &agentbus.Error{
				Code: agentbus.CodeForbidden, Message: "the agent's card sends calls to another host than its own",
				Explain: &agentbus.Explain{Rule: "P24", Observed: plain(at.URL), Next: "set url to the address of that interface, if you trust it with credentials"},
			}
		}
		return at, nil
	}
	slices.Sort(offered)
	return nil, &agentbus.Error{
		Code: agentbus.CodeUnsupportedVersion, Message: "the agent offers no interface of A2A 1.0 that we speak",
		Explain: &agentbus.Explain{
			Rule: "A37", Observed: cmp.Or(plain(strings.Join(offered, ", ")), "a card without supportedInterfaces"), Supported: []string{"JSONRPC 1.0", "HTTP+JSON 1.0"},
			Next: "let the agent serve A2A 1.0; clients of the version that it speaks reach it at /a2a/NAME",
		},
	}
}

// isEndpoint reports whether at is the configured URL, under JSON-RPC.
func (b *Backend) isEndpoint(at *sdk.AgentInterface) bool {
	return at.ProtocolBinding == sdk.TransportProtocolJSONRPC && strings.TrimSuffix(at.URL, "/") == strings.TrimSuffix(b.url.String(), "/")
}

// isVersion1 reports whether v is a version of A2A that 1.0 is compatible with (A26).
func isVersion1(v string) bool { return v == "1" || strings.HasPrefix(v, "1.") }
