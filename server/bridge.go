package server

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
	"github.com/agentbus/agentbus/server/config"
)

// What agents are told that we understand: policy parts, which we surface, and
// payments by x402, which we carry (C28, C32).
var understood = []string{
	a2a.ExtensionPolicy,
	"https://github.com/google-agentic-commerce/a2a-x402/blob/main/spec/v0.2",
	"https://github.com/google-a2a/a2a-x402/v0.1",
}

// A bridge makes an A2A agent a model (A38): by each of its URLs, in memory, the
// OpenAI dialect before the client of A2A.
type bridge struct {
	at     []string                     // URLs of the agent
	models map[string]http.RoundTripper // by URL
	header []string                     // what the gateway writes for the agent
}

func (s *wiring) bridge(name string, a config.Agent) (*bridge, error) {
	b := &bridge{at: a.URLs, models: map[string]http.RoundTripper{}, header: []string{"Authorization", "X-User-Id", "X-Kagent-Source"}}
	if len(b.at) == 0 {
		b.at = []string{a.URL}
	}
	for header := range a.Headers {
		b.header = append(b.header, http.CanonicalHeaderKey(header))
	}
	for _, at := range b.at {
		agent, err := a2a.NewBackend(a2a.BackendConfig{
			Name: name, URL: at, Key: a.Authorization, Transport: s.tasks, AllowPlaintext: a.AllowPlaintext, Extensions: understood,
			IsolateSessions: a.IsolateSessions, Idempotent: a.Idempotent, Sessions: s.store,
			Payer: payerOf,
		})
		if err != nil {
			return nil, err
		}
		b.models[strings.TrimSuffix(at, "/")] = httpx.Memory(openai.Handler(openai.HandlerConfig{
			Backend: agentbus.Wrap(agent, told, called), AnswersJSON: a.AnswersJSON, Log: s.log, MaxBody: int64(s.cfg.Limits.MaxBody),
		}))
	}
	return b, nil
}

// RoundTrip calls the agent at the URL that the gateway has chosen.
func (b *bridge) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{}
	for _, name := range b.header {
		if v := r.Header[name]; len(v) > 0 {
			h[name] = v
		}
	}
	asked := *r.URL
	asked.RawQuery = ""
	var to http.RoundTripper
	path, base := "", ""
	for at, model := range b.models { // the longest: one URL may be below another
		if below, ok := strings.CutPrefix(asked.String(), at+"/"); ok && len(at) >= len(base) {
			to, path, base = model, below, at
		}
	}
	if to == nil {
		return nil, &agentbus.Error{Code: agentbus.CodeInternal, Message: "the bridge to the agent knows no such URL"}
	}
	in := r.Clone(a2a.WithHeader(r.Context(), h))
	in.URL = &url.URL{Scheme: asked.Scheme, Host: asked.Host, Path: "/" + path}
	return to.RoundTrip(in)
}
