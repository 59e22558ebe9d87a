package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/agentbus/agentbus"
)

const (
	headerUserID = "X-User-Id"
	headerSource = "X-Kagent-Source"
)

// tellsUser reports whether a header says on whose behalf a call is made: one of
// kagent's two, or an underscore twin of one (K7, K9).
func tellsUser(name string) bool {
	if len(name) != len(headerUserID) && len(name) != len(headerSource) {
		return false
	}
	name = strings.ReplaceAll(name, "_", "-")
	return strings.EqualFold(name, headerUserID) || strings.EqualFold(name, headerSource)
}

// noteUser notes what a caller says of users although it may speak for none: it
// ends here (K9).
func (x *exchange) noteUser(h http.Header) {
	if x.caller.InterAgent || x.inProcess != nil {
		return
	}
	for name := range h {
		if tellsUser(name) {
			x.note("stripped:" + strings.ToLower(name))
		}
	}
}

// user tells an agent that wants to know on whose behalf it is called (K7): the
// principal that pays, or whom an agent that may speak for others names (K9).
func (x *exchange) user(h, inbound http.Header) {
	if !x.target.Kagent {
		return
	}
	user, byAgent := string(x.payer), x.inProcess != nil || x.scope != nil
	if x.caller.InterAgent && x.inProcess == nil {
		if said := inbound[headerUserID]; len(said) == 1 && agentbus.SessionID(said[0]) == said[0] && said[0] != "" {
			user = said[0]
		}
		said := inbound[headerSource]
		byAgent = byAgent || len(said) == 1 && said[0] == agentbus.KagentSource
	}
	h[headerUserID] = []string{user}
	if byAgent {
		h[headerSource] = []string{agentbus.KagentSource}
	}
}

// layer lays the configured headers over those of the lineage, and then those of
// the program that the gateway is part of (K6). Neither sets what is the
// gateway's own, or of the connection.
func (g *Gateway) layer(ctx context.Context, x *exchange, h http.Header) {
	agentbus.Layer(h, x.target.Header) // the configuration refuses what would be left out
	if x.target.HeaderProvider == nil {
		return
	}
	provided := http.Header{}
	var dropped []string
	for name, values := range x.target.HeaderProvider(ctx) {
		if name = http.CanonicalHeaderKey(name); hopByHop[name] || notForwarded[name] || name == "Host" {
			dropped = append(dropped, name)
			continue
		}
		provided[name] = values
	}
	if dropped = append(dropped, agentbus.Layer(h, provided)...); len(dropped) > 0 {
		g.log.LogAttrs(ctx, slog.LevelWarn, "headers of a provider were left out", slog.String("agent", x.target.Name), slog.Any("headers", dropped))
	}
}
