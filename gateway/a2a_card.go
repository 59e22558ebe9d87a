package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

const (
	cardAge     = 5 * time.Minute  // how long an agent's card is believed, as long as callers are told to (A10)
	cardRetry   = 30 * time.Second // after an agent gave none
	cardTimeout = 5 * time.Second
)

// A heldCard is the card of one URL of an agent, as it was last read.
type heldCard struct {
	reading sync.Mutex // held by the one who reads it

	mu         sync.Mutex // guards the rest
	raw        []byte
	interfaces []a2a.Interface
	err        error
	until      time.Time
}

func (c *heldCard) known() (raw []byte, interfaces []a2a.Interface, fresh bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw, c.interfaces, time.Now().Before(c.until), c.err
}

// cardOf returns the card of one of an agent's URLs and the endpoints that it
// names. It is read when it is needed, by one for all who wait, and an old one
// is used for as long as there is no other.
func (g *Gateway) cardOf(ctx context.Context, t *Target, u *upstream) ([]byte, []a2a.Interface, error) {
	c := &u.card
	raw, interfaces, fresh, err := c.known()
	if fresh {
		return raw, interfaces, err
	}
	if raw == nil {
		c.reading.Lock()
	} else if !c.reading.TryLock() {
		return raw, interfaces, nil
	}
	defer c.reading.Unlock()
	if raw, interfaces, fresh, err = c.known(); fresh {
		return raw, interfaces, err
	}
	got, err := g.readCard(ctx, t, u)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.until = time.Now().Add(cardRetry)
		if c.raw == nil {
			c.err = err
		}
		return c.raw, c.interfaces, c.err
	}
	c.raw, c.interfaces, c.err, c.until = got, a2a.Interfaces(got), nil, time.Now().Add(cardAge)
	return c.raw, c.interfaces, nil
}

// readCard reads the card below an agent's base, or, when there is none, at the
// root of its host, where cards usually are. It sends no credential.
func (g *Gateway) readCard(ctx context.Context, t *Target, u *upstream) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cardTimeout)
	defer cancel()
	raw, err := getCard(ctx, t, u.at(cardPath, ""))
	if root := (&url.URL{Scheme: u.base.Scheme, Host: u.base.Host, Path: cardPath}); err != nil && strings.Trim(u.base.Path, "/") != "" {
		raw2, err2 := getCard(ctx, t, root)
		if err2 == nil {
			return raw2, nil
		}
		err = errors.Join(err, err2)
	}
	if err != nil {
		g.log.LogAttrs(ctx, slog.LevelWarn, "agent card not read", slog.String("agent", t.Name), slog.String("url", u.name), slog.Any("error", err))
	}
	return raw, err
}

func getCard(ctx context.Context, t *Target, at *url.URL) ([]byte, error) {
	r := (&http.Request{
		Method: http.MethodGet, URL: at, Host: at.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Accept": {"application/json"}, "User-Agent": {"agentbus"}}, Body: http.NoBody,
	}).WithContext(ctx)
	resp, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", at, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, a2a.MaxCard+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", at, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("read %s: status %d", at, resp.StatusCode)
	case len(body) > a2a.MaxCard:
		return nil, fmt.Errorf("read %s: the card is over %d bytes", at, a2a.MaxCard)
	}
	return body, nil
}

// endpoint returns where one of an agent's URLs takes requests of a binding:
// what its card names on the same host, else the URL itself. Credentials go
// nowhere but to what is configured (P24).
func (g *Gateway) endpoint(ctx context.Context, t *Target, u *upstream, e *envelope) *url.URL {
	_, interfaces, _ := g.cardOf(ctx, t, u) // without a card the URL itself is meant
	to := u.base
	if named := a2a.Endpoint(interfaces, e.binding, e.version); named != "" {
		to = u.named(named)
	}
	own := *to
	return &own
}

// A namedURL is what a card names as an endpoint, and where requests go for it.
type namedURL struct {
	name string
	url  *url.URL
}

// named returns the URL that a card names, where that is on the same host, else the
// base. The last one is remembered: it is nearly always the next one too.
func (u *upstream) named(name string) *url.URL {
	if last := u.last.Load(); last != nil && last.name == name {
		return last.url
	}
	to, err := url.Parse(name)
	if err != nil || to.Scheme != u.base.Scheme || !strings.EqualFold(to.Host, u.base.Host) || to.User != nil {
		to = u.base
	}
	u.last.Store(&namedURL{name, to})
	return to
}

// addressed returns the URL that a request goes to: of A2A exactly the endpoint
// for JSON-RPC, the method's path below it for REST, with the caller's query (A3).
func (g *Gateway) addressed(ctx context.Context, x *exchange, r *http.Request, to *upstream) *url.URL {
	if x.envelope == nil {
		return to.at(x.path, r.URL.RawQuery)
	}
	u := g.endpoint(ctx, x.target, to, x.envelope)
	if x.envelope.binding == a2a.REST {
		path := strings.TrimRight(u.EscapedPath(), "/") + x.envelope.below
		if plain, err := url.PathUnescape(path); err == nil {
			u.Path, u.RawPath = plain, path
		}
	}
	if u.RawQuery != "" && r.URL.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += r.URL.RawQuery
	return u
}

// serveCard answers with the card of an agent (A3, A10). Cards are public: who
// asks need not say who it is.
func (g *Gateway) serveCard(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	if x.envelope == nil {
		x.envelope = &envelope{name: g.cfg.A2A.DefaultAgent, binding: a2a.REST, card: true}
	}
	err := g.findA2A(r, x)
	if x.envelope.name == "" {
		err = &agentbus.Error{
			Code: agentbus.CodeAgentNotFound, Message: "this bus has no agent whose card stands here",
			Explain: &agentbus.Explain{Rule: "A3", Next: "GET " + a2aPrefix + "NAME" + cardPath + ", or ask the operator to set a2a.default_agent"},
		}
	}
	if err != nil {
		x.refuse(w, err)
		return
	}
	if x.target.A2A == nil {
		x.envelope.request = &a2a.Request{Agent: x.target.Name, Base: g.mount(r, x.target)}
		g.face(w, r, x)
		return
	}
	card, err := g.ownCard(r, x)
	if err != nil {
		x.refuse(w, err)
		return
	}
	x.echo(w.Header())
	x.answering()
	x.record.Status = a2a.WriteCard(w, r, card, r.Header.Get("Authorization") != "")
}

// ownCard returns the card of an A2A agent as it is behind this bus: that of the
// first of its URLs that has one.
func (g *Gateway) ownCard(r *http.Request, x *exchange) ([]byte, error) {
	var faults []error
	for _, u := range x.target.upstreams().list {
		raw, _, err := g.cardOf(r.Context(), x.target, u)
		if err == nil {
			if raw, err = a2a.RewriteCard(raw, g.cardEdit(r, x)); err == nil {
				return raw, nil
			}
		}
		faults = append(faults, err)
	}
	return nil, &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "agent " + x.target.Name + " shows no card", Err: errors.Join(faults...),
		Explain: &agentbus.Explain{Rule: "A10", Next: "ask the operator whether the agent's url is the base below which its card is"},
	}
}

// cardEdit says what becomes of the agent's card.
func (g *Gateway) cardEdit(r *http.Request, x *exchange) a2a.CardEdit {
	e := a2a.CardEdit{Base: g.mount(r, x.target), Push: x.target.A2A.Push, KeepSecurity: x.target.Passthrough}
	for _, u := range x.target.upstreams().list {
		e.Hosts = append(e.Hosts, strings.ToLower(u.base.Host))
	}
	return e
}
