package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/agentbus/agentbus"
)

// Algorithms are the signatures that a [JWT] can be told to accept. Neither
// none nor an HMAC is among them: a public key is no secret.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// JWTConfig configures [NewJWT].
type JWTConfig struct {
	Realm  Realm // required
	Claims Claims

	Issuer     string        // what the tokens say in iss, to the byte; required
	Audience   string        // what they must name in aud; required
	JWKSURL    string        // where the issuer's keys are; "": its discovery document tells
	Algorithms []string      // that are accepted, of Algorithms; nil: RS256, ES256 and EdDSA
	Leeway     time.Duration // for clocks that differ; 0: 30 s

	Transport http.RoundTripper // to the issuer; nil: one of its own, without a proxy
	Logger    *slog.Logger      // nil: nothing is logged
}

// A JWT authenticates bearers of signed tokens of one issuer (G4): OpenID
// Connect, or any issuer that publishes its keys. Issuer and keys are read over
// https or from this machine, when the first token comes; the keys are kept for
// an hour, and for a day when the issuer does not answer. It is safe for
// concurrent use.
type JWT struct {
	cfg        JWTConfig
	algorithms []jose.SignatureAlgorithm
	keys       keySet
}

// maxToken is the most bytes of a token that are looked at.
const maxToken = 16 << 10

// NewJWT returns a verifier of the tokens of one issuer. It reports every fault
// of the configuration at once, and asks the issuer nothing yet.
func NewJWT(c JWTConfig) (*JWT, error) {
	faults := []error{c.Realm.check()}
	if err := checkURL(c.Issuer); err != nil {
		faults = append(faults, fmt.Errorf("issuer: %w", err))
	}
	if c.JWKSURL != "" {
		if err := checkURL(c.JWKSURL); err != nil {
			faults = append(faults, fmt.Errorf("JWKS: %w", err))
		}
	}
	if c.Audience == "" {
		faults = append(faults, errors.New("an audience is required: tokens for somebody else would count here"))
	}
	if c.Algorithms == nil {
		c.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	j := &JWT{}
	for _, a := range c.Algorithms {
		if !slices.Contains(Algorithms(), a) {
			faults = append(faults, fmt.Errorf("%q is no algorithm that can be accepted", a))
		}
		j.algorithms = append(j.algorithms, jose.SignatureAlgorithm(a))
	}
	if len(c.Algorithms) == 0 {
		faults = append(faults, errors.New("no algorithm is accepted"))
	}
	if c.Leeway == 0 {
		c.Leeway = 30 * time.Second
	}
	if c.Claims.Subject == "" {
		c.Claims.Subject = "sub"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	j.cfg = c
	j.keys = keySet{issuer: c.Issuer, url: c.JWKSURL, client: newClient(c.Transport, fetchTimeout), log: c.Logger}
	return j, errors.Join(faults...)
}

// Identify returns the principal of "Bearer " and a token of the issuer. A
// value that is no JWT, or one of another issuer, is [ErrNotMine]. When the
// issuer's keys cannot be had it fails with CodeIdentityUnavailable.
func (j *JWT) Identify(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error) {
	bearer, ok := authorization.Token()
	if !ok {
		return agentbus.Principal{}, notMine("no token was sent")
	}
	token := bearer.Reveal() //nolint:forbidigo // a credential is verified (P19)
	if issuerOf(token) != j.cfg.Issuer {
		return agentbus.Principal{}, notMine("the token is not of a known issuer")
	}
	claims, err := j.verified(ctx, token)
	if err != nil {
		return agentbus.Principal{}, err
	}
	return j.cfg.Realm.principal(text(claims, j.cfg.Claims.Subject), j.cfg.Claims.admin(claims))
}

// issuerOf returns who a token says it is of, or "" when it is no JWT. Nothing
// is verified: this only tells whose business it is.
func issuerOf(token string) string {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return ""
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// verified returns the claims of a token that is signed by the issuer and
// counts here and now. No cause is kept: it could repeat the token.
func (j *JWT) verified(ctx context.Context, token string) (map[string]any, error) {
	signed, err := jwt.ParseSigned(token, j.algorithms)
	if err != nil {
		if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
			return nil, bad("algorithm", "the token is not signed in a way that is accepted here", "let its issuer sign with one of "+strings.Join(j.cfg.Algorithms, ", "))
		}
		return nil, bad("malformed", "the token is malformed", "send the token as its issuer gave it")
	}
	h := signed.Headers[0]
	key, err := j.keys.find(ctx, h.KeyID, jose.SignatureAlgorithm(h.Algorithm))
	switch {
	case errors.Is(err, errUnknownKey):
		return nil, bad("unknown_key", "the token is signed with a key that its issuer does not publish", "get a new token")
	case err != nil:
		return nil, unavailable("the issuer of the token cannot be asked for its keys", err)
	}
	var (
		std    jwt.Claims
		claims map[string]any
	)
	switch err := signed.Claims(key, &std, &claims); {
	case errors.Is(err, jose.ErrCryptoFailure):
		return nil, bad("bad_signature", "the signature of the token is not its issuer's", "get a new token")
	case err != nil:
		return nil, bad("malformed", "the token is malformed", "send the token as its issuer gave it")
	}
	return claims, j.valid(std)
}

// valid reports why a token that the issuer signed does not count here and now.
func (j *JWT) valid(c jwt.Claims) error {
	if c.Expiry == nil {
		return bad("no_expiry", "the token never expires", "let its issuer set exp")
	}
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: j.cfg.Issuer, AnyAudience: jwt.Audience{j.cfg.Audience}}, j.cfg.Leeway)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return bad("expired", "the token has expired", "get a new token")
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return bad("not_yet_valid", "the token is not valid yet", "see to the clocks of this machine and of its issuer")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return bad("wrong_audience", "the token is for another audience", "get a token for the audience that this bus expects")
	}
	return bad("wrong_issuer", "the token is of another issuer", "get a token of an issuer that this bus trusts")
}
