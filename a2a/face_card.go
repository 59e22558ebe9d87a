package a2a

import (
	"cmp"
	"context"
	"net/http"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// bearer is the name of the security scheme that cards declare: the bus's own.
const bearer = "bearer"

// card returns the card of an agent as it is served here: our URLs, our security,
// streaming, and no webhooks.
func (f *Face) card(r *Request, s *Served) *sdk.AgentCard {
	interfaces := []*sdk.AgentInterface{
		sdk.NewAgentInterface(r.Base, sdk.TransportProtocolJSONRPC),
		sdk.NewAgentInterface(r.Base+"/rest", sdk.TransportProtocolHTTPJSON),
	}
	if s.Compat {
		interfaces = append(interfaces,
			&sdk.AgentInterface{URL: r.Base, ProtocolBinding: sdk.TransportProtocolJSONRPC, ProtocolVersion: a2av0.Version},
			&sdk.AgentInterface{URL: r.Base + "/rest", ProtocolBinding: sdk.TransportProtocolHTTPJSON, ProtocolVersion: a2av0.Version})
	}
	description := cmp.Or(s.Description, "The agent "+r.Agent+" of this bus.")
	modes := []string{"text/plain", "application/json"}
	c := &sdk.AgentCard{
		Name: r.Agent, Description: description, Version: cmp.Or(s.Version, "1"), SupportedInterfaces: interfaces,
		DefaultInputModes: modes, DefaultOutputModes: modes,
		Capabilities:         sdk.AgentCapabilities{Streaming: true, ExtendedAgentCard: true},
		SecuritySchemes:      sdk.NamedSecuritySchemes{bearer: sdk.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: "A key or token of this bus."}},
		SecurityRequirements: sdk.SecurityRequirementsOptions{{bearer: {}}},
		Skills:               []sdk.AgentSkill{{ID: r.Agent, Name: r.Agent, Description: description, Tags: []string{"agent"}}}, // E60
	}
	for _, uri := range f.config.Extensions {
		c.Capabilities.Extensions = append(c.Capabilities.Extensions, sdk.AgentExtension{URI: uri})
	}
	return c
}

// serveCard answers with the card (A28).
func (f *Face) serveCard(w http.ResponseWriter, r *http.Request, req *Request, s *Served) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		WriteError(w, REST, nil, fault(CodeMethodNotFound, "", "a card is read with GET", "GET it"))
		return
	}
	card := f.card(req, s)
	body, err := oneLine(card)
	if s.Compat {
		body, err = bothVersions(r.Context(), card)
	}
	if err != nil {
		WriteError(w, REST, nil, err)
		return
	}
	WriteCard(w, r, body, false)
}

// bothVersions returns a card that readers of 0.3 understand too. The SDK writes
// the security schemes in the words of 0.3 alone, which its own reader of 1.0
// refuses.
func bothVersions(ctx context.Context, card *sdk.AgentCard) ([]byte, error) {
	producer, ok := a2av0.NewStaticAgentCardProducer(card).(a2asrv.AgentCardJSONProducer)
	if !ok {
		return oneLine(card)
	}
	body, err := producer.CardJSON(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it tells which interface is missing
	}
	c, err := decodeCard(body)
	if err != nil {
		return nil, err
	}
	secure(c)
	return oneLine(c)
}
