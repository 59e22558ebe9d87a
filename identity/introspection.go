package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/agentbus/agentbus"
)

// IntrospectionConfig configures [NewIntrospection].
type IntrospectionConfig struct {
	Realm  Realm  // required
	Claims Claims // Subject "": sub, else username

	URL          string // of the endpoint; required
	ClientID     string // whom the bus is to it; required
	ClientSecret agentbus.Credential
	// Prefixes begin the bearers that the endpoint is asked about, such as
	// "x402_". It is sent no other; without any, it is asked about every bearer
	// that comes to it.
	Prefixes []string
	Audience string // what the endpoint must name in aud; "": anything

	TTL     time.Duration // how long a token that counts is not asked about again, unless it ends before; 0: 30 s
	Cache   int           // tokens that are remembered; 0: 10,000
	Timeout time.Duration // of a question; 0: 5 s

	Transport http.RoundTripper // to the endpoint; nil: one of its own, without a proxy
	Logger    *slog.Logger      // nil: nothing is logged
}

// An Introspection authenticates opaque bearers by asking who issued them (RFC
// 7662): the payer is whom the endpoint names (G4). It remembers answers under
// the hash of the token, never under the token. It is safe for concurrent use.
type Introspection struct {
	cfg    IntrospectionConfig
	client *http.Client
	good   *lru.Cache[agentbus.Digest, known]
	refuse *lru.Cache[agentbus.Digest, refusal] // apart, so that made-up tokens cannot push good ones out
	flight singleflight.Group
	slots  chan struct{} // one for each question that is being asked
}

// A known is a principal that is believed until a time.
type known struct {
	principal agentbus.Principal
	until     time.Time
}

// A refusal is an answer that a token does not count, until a time.
type refusal struct {
	err   error
	until time.Time
}

const (
	refusalTTL       = 5 * time.Second // how long a token that does not count is not asked about again
	maxQuestions     = 64              // asked at once
	maxIntrospection = 64 << 10        // bytes of an answer
)

// NewIntrospection returns an identifier of opaque bearers. It reports every
// fault of the configuration at once, and asks the endpoint nothing yet.
func NewIntrospection(c IntrospectionConfig) (*Introspection, error) {
	faults := []error{c.Realm.check()}
	if err := checkURL(c.URL); err != nil {
		faults = append(faults, fmt.Errorf("introspection: %w", err))
	}
	if c.ClientID == "" || c.ClientSecret.IsZero() {
		faults = append(faults, errors.New("introspection needs a client id and its secret"))
	}
	for _, p := range c.Prefixes {
		if p == "" {
			faults = append(faults, errors.New("an empty prefix would show every credential to the introspection endpoint"))
		}
	}
	c.setDefaults()
	i := &Introspection{cfg: c, client: newClient(c.Transport, c.Timeout), slots: make(chan struct{}, maxQuestions)}
	var err error
	if i.good, err = lru.New[agentbus.Digest, known](c.Cache); err != nil {
		faults = append(faults, err)
	}
	i.refuse, _ = lru.New[agentbus.Digest, refusal](max(1, c.Cache)) // fails for a size that is not positive
	return i, errors.Join(faults...)
}

func (c *IntrospectionConfig) setDefaults() {
	if c.TTL == 0 {
		c.TTL = 30 * time.Second
	}
	if c.Cache == 0 {
		c.Cache = 10_000
	}
	if c.Timeout == 0 {
		c.Timeout = fetchTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Identify returns the principal that the endpoint names for "Bearer " and a
// token of one of the prefixes, where there are some; anything else is [ErrNotMine]. When the
// endpoint does not answer as it should it fails with CodeIdentityUnavailable,
// or CodeOverloaded when it is being asked too much at once.
func (i *Introspection) Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error) {
	bearer, ok := authorization.Token()
	if !ok || !i.asks(bearer) {
		return agentbus.Principal{}, notMine("the token has none of the prefixes that are asked about")
	}
	h := Hash(bearer)
	if p, err, ok := i.remembered(h); ok {
		return p, err
	}
	v, err, _ := i.flight.Do(string(h[:]), func() (any, error) {
		if p, err, ok := i.remembered(h); ok {
			return p, err
		}
		return i.ask(context.WithoutCancel(ctx), h, bearer) // others wait for it too; the client bounds its time
	})
	p, _ := v.(agentbus.Principal)
	return p, err
}

func (i *Introspection) asks(bearer agentbus.Credential) bool {
	if len(i.cfg.Prefixes) == 0 {
		return true
	}
	token := bearer.Reveal() //nolint:forbidigo // a credential is verified, by its form (P19)
	for _, p := range i.cfg.Prefixes {
		if strings.HasPrefix(token, p) {
			return true
		}
	}
	return false
}

// remembered returns what the endpoint said of a token not long ago.
func (i *Introspection) remembered(h agentbus.Digest) (p agentbus.Principal, err error, ok bool) {
	now := time.Now()
	if k, ok := i.good.Get(h); ok && now.Before(k.until) {
		return k.principal, nil, true
	}
	if r, ok := i.refuse.Get(h); ok && now.Before(r.until) {
		return agentbus.Principal{}, r.err, true
	}
	return agentbus.Principal{}, nil, false
}

// ask asks the endpoint about a token and remembers the answer, but for one
// that tells nothing.
func (i *Introspection) ask(ctx context.Context, h agentbus.Digest, bearer agentbus.Credential) (agentbus.Principal, error) {
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	default:
		return agentbus.Principal{}, &agentbus.Error{
			Code: agentbus.CodeOverloaded, Message: "too many tokens are being asked about at once",
			Explain: &agentbus.Explain{Rule: "G4", Limit: maxQuestions, Next: "send the same turn again after the given time"},
		}
	}
	now := time.Now()
	claims, err := i.introspect(ctx, bearer)
	if err != nil {
		i.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the introspection endpoint does not answer as it should", slog.String("url", i.cfg.URL), slog.Any("error", err))
		return agentbus.Principal{}, unavailable("the issuer of the token cannot be asked about it", err)
	}
	p, until, err := i.judge(claims, now)
	if err != nil {
		i.good.Remove(h)
		i.refuse.Add(h, refusal{err, now.Add(refusalTTL)})
		return p, err
	}
	i.good.Add(h, known{p, until})
	return p, nil
}

// introspect asks the endpoint about a token (RFC 7662, section 2).
func (i *Introspection) introspect(ctx context.Context, bearer agentbus.Credential) (map[string]any, error) {
	form := url.Values{
		"token":           {bearer.Reveal()}, //nolint:forbidigo // verified by its issuer, whom its prefix names (P19)
		"token_type_hint": {"access_token"},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.cfg.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	secret := i.cfg.ClientSecret.Reveal()                                    //nolint:forbidigo // written into the request to the endpoint it is for (P19)
	r.SetBasicAuth(url.QueryEscape(i.cfg.ClientID), url.QueryEscape(secret)) // RFC 6749, section 2.3.1
	var claims map[string]any
	if err := doJSON(i.client, r, maxIntrospection, &claims); err != nil {
		return nil, err
	}
	if _, ok := claims["active"].(bool); !ok {
		return nil, errors.New("its answer does not say whether the token is active")
	}
	return claims, nil
}

// judge returns whom an answer names, and until when that may be believed.
func (i *Introspection) judge(claims map[string]any, now time.Time) (p agentbus.Principal, until time.Time, err error) {
	const next = "get a new token"
	until = now.Add(i.cfg.TTL)
	ends, begins := date(claims["exp"]), date(claims["nbf"])
	switch {
	case claims["active"] != true:
		return p, until, bad("inactive", "the token is not active", next)
	case ends != nil && !now.Before(ends.Time()):
		return p, until, bad("expired", "the token has expired", next)
	case begins != nil && now.Before(begins.Time()):
		return p, until, bad("not_yet_valid", "the token is not valid yet", "see to the clocks of this machine and of its issuer")
	case i.cfg.Audience != "" && !names(claims["aud"], i.cfg.Audience):
		return p, until, bad("wrong_audience", "the token is for another audience", "get a token for the audience that this bus expects")
	}
	if ends != nil && ends.Time().Before(until) {
		until = ends.Time()
	}
	subject := []string{"sub", "username"}
	if i.cfg.Claims.Subject != "" {
		subject = []string{i.cfg.Claims.Subject}
	}
	p, err = i.cfg.Realm.principal(text(claims, subject...), i.cfg.Claims.admin(claims))
	return p, until, err
}

// date returns a time in seconds since 1970, or nil when v is none.
func date(v any) *jwt.NumericDate {
	if f, ok := v.(float64); ok && f >= 0 && f < 1<<40 {
		d := jwt.NumericDate(f)
		return &d
	}
	return nil
}

// names reports whether aud, a text or a list of texts, names an audience.
func names(aud any, audience string) bool {
	switch v := aud.(type) {
	case string:
		return v == audience
	case []any:
		return slices.Contains(v, any(audience))
	}
	return false
}
