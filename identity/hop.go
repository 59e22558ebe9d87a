package identity

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// maxHopToken is the longest hop that is taken, in bytes.
const maxHopToken = 8 << 10

// HopType is the typ of a signed hop (C16).
const HopType = "agent-chain+jwt"

// A HopIssuer is another bus whose signed hops count here.
type HopIssuer struct {
	Issuer string // the URL in whose name it signs; its keys are at that host
	Caller string // the principal as which it calls here
}

// HopsConfig configures [NewHops].
type HopsConfig struct {
	Signer *Signer // required
	Trust  []HopIssuer
	Client *http.Client // reads the cards of issuers, as in EvidenceConfig; required with Trust
	Proofs Proofs       // required
	Logger *slog.Logger // nil: nothing is logged
	Now    func() time.Time
}

// Hops signs the hops of chains and verifies those of others (C16). Anyone can
// start a chain in its own name: a token only stops the use of upstream
// authority, budget and conversation. It is safe for concurrent use.
type Hops struct {
	cfg     HopsConfig
	issuers map[string]*issuer
	callers map[string]string
}

// NewHops returns what signs and verifies hops, and asks no issuer yet. It fails where
// a Signer, Proofs, or a Client for those it trusts is missing, and for an issuer
// whose URL is none.
func NewHops(c HopsConfig) (*Hops, error) {
	if c.Signer == nil || c.Proofs == nil || c.Client == nil && len(c.Trust) > 0 {
		return nil, errors.New("identity: signed hops need a signer, proofs and a client")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Hops{cfg: c, issuers: map[string]*issuer{}, callers: map[string]string{}}
	for _, t := range c.Trust {
		if _, err := cardURL(t.Issuer); err != nil {
			return nil, err
		}
		h.issuers[t.Issuer], h.callers[t.Issuer] = &issuer{name: t.Issuer, client: noRedirects(c.Client), now: c.Now}, t.Caller
	}
	h.issuers[c.Signer.issuer] = &issuer{name: c.Signer.issuer, client: ownCard(c.Signer), now: c.Now}
	return h, nil
}

// ownCard is a client that knows the card of one signer, and nothing else.
func ownCard(s *Signer) *http.Client {
	return &http.Client{Transport: card(s.Card())}
}

// Verify returns what a signed hop says, after the checks of C16 in their order.
// One that does not count fails with CodeUnauthenticated, with CodeInvalidLineage
// where what was sent in the plain belies it, with CodeChainFinal beyond the last
// hop, or with CodeCycleRefused; why is logged.
func (h *Hops) Verify(ctx context.Context, token string, to agentbus.HopFor) (agentbus.Hop, error) {
	hop, err := h.verify(ctx, token, &to)
	if err == nil {
		return hop, nil
	}
	why, ours := errors.AsType[*EvidenceError](err)
	if !ours {
		return hop, err
	}
	h.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "signed hop refused", slog.String("code", string(why.Code)), slog.String("why", why.Why), slog.Any("cause", why.Err))
	return hop, &agentbus.Error{
		Code: agentbus.CodeUnauthenticated, Message: "the signed hop of this call does not count here", Err: err,
		Explain: &agentbus.Explain{Rule: "C16", Next: "send the hop that was signed for this agent and this message, once, or none"},
	}
}

func (h *Hops) verify(ctx context.Context, token string, to *agentbus.HopFor) (agentbus.Hop, error) {
	hop, counts, err := h.read(ctx, token)
	if err != nil {
		return hop, err
	}
	if !slices.ContainsFunc(to.Audiences, func(a string) bool { return canonicalAudience(a) == canonicalAudience(hop.Audience) }) {
		return hop, noEvidence(EvidenceDomainMismatch, "the hop is for another agent")
	}
	if err := counts.holds(h.cfg.Now()); err != nil {
		return hop, err
	}
	if hop.Hop != len(hop.Path) || hop.Hop < 1 || hop.MaxHops > agentbus.MaxChainHops {
		return hop, noEvidence(EvidenceMalformed, "the hop is not as far as its path")
	}
	if hop.Actor != nil && !hop.Actor.Says(hop.Path) {
		return hop, noEvidence(EvidenceMalformed, "the hop names other actors than its path")
	}
	if !h.sentBy(hop.Issuer, hop.Path[len(hop.Path)-1], to.Sender) {
		return hop, noEvidence(EvidenceOtherController, "the hop was made for another sender")
	}
	chain := agentbus.AgentChain{Hop: hop.Hop, MaxHops: hop.MaxHops}
	if chain, err = chain.Bound(to.MaxHops); err != nil {
		return hop, err
	}
	for _, known := range to.Known {
		if slices.ContainsFunc(hop.Path, func(p string) bool { return canonicalAudience(p) == canonicalAudience(known) }) {
			return hop, &agentbus.Error{
				Code: agentbus.CodeCycleRefused, Message: "the agent that is called is on the way of this chain already",
				Explain: &agentbus.Explain{Rule: "C12", Observed: len(hop.Path), Next: "answer from what you have, or ask another agent"},
			}
		}
	}
	if hop.MessageID != to.MessageID {
		return hop, noEvidence(EvidenceChallengeMismatch, "the hop is of another message")
	}
	if err := useProof(ctx, h.cfg.Proofs, proofDigest("hop", hop.Issuer, hop.ID, canonicalAudience(hop.Audience)), hop.Expires); err != nil {
		return hop, err
	}
	if p := to.Plain; p != nil && (p.Hop != hop.Hop || min(p.MaxHops, to.MaxHops) != chain.MaxHops) {
		return hop, &agentbus.Error{
			Code: agentbus.CodeInvalidLineage, Message: "the agent chain of this call is not the one that was signed",
			Explain: &agentbus.Explain{Rule: "C16", Observed: p.Hop, Limit: hop.Hop, Next: "send the chain as it was signed"},
		}
	}
	return hop, nil
}

// Read returns what a hop says that this bus, or one that it trusts, has signed,
// whenever and for whomever that was.
func (h *Hops) Read(ctx context.Context, token string) (agentbus.Hop, error) {
	hop, _, err := h.read(ctx, token)
	return hop, err
}

// read returns a hop and when it counts.
func (h *Hops) read(ctx context.Context, token string) (hop agentbus.Hop, counts period, err error) {
	payload, ok := tokenPayload(token)
	if !ok || twins(payload) || json.Unmarshal(payload, &hop) != nil {
		return hop, counts, noEvidence(EvidenceMalformed, "the hop is no token")
	}
	i, ok := h.issuers[hop.Issuer]
	if !ok {
		return hop, counts, noEvidence(EvidenceUntrusted, "nobody here trusts the issuer")
	}
	signed, err := parseToken(token, HopType, hop.Issuer)
	if err != nil {
		return hop, counts, err
	}
	payload, err = i.payload(ctx, signed)
	if err != nil {
		return hop, counts, err
	}
	hop = agentbus.Hop{}
	if json.Unmarshal(payload, &hop) != nil || json.Unmarshal(payload, &counts) != nil || hop.ID == "" || hop.Subject == "" {
		return hop, counts, noEvidence(EvidenceMalformed, "the hop says not what it must")
	}
	return hop, counts, nil
}

// sentBy reports whether the last of a path is who sends: an issuer speaks of its
// own callers, and calls here as one principal.
func (h *Hops) sentBy(issuer, last, sender string) bool {
	if issuer == h.cfg.Signer.issuer {
		return last == issuer+"#"+sender
	}
	return h.callers[issuer] == sender && sender != "" && strings.HasPrefix(last, issuer+"#")
}

// Sign returns the token of a hop. It counts no longer, and has no more left,
// than the hop before it; where that one has expired, counts is false: it proves who
// called, and nobody would take it any more.
func (h *Hops) Sign(n agentbus.NextHop) (token string, counts bool, err error) {
	now := h.cfg.Now()
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	hop := agentbus.Hop{
		Issuer: h.cfg.Signer.issuer, Audience: n.Audience, Subject: string(n.Payer), Issued: now.Unix(), Expires: now.Add(evidenceWindow).Unix(),
		ID: cmp.Or(n.ID, hex.EncodeToString(id[:])), Chain: string(n.Run), RootContext: n.RootContext, Parent: n.Context,
		Hop: n.Chain.Hop, MaxHops: n.Chain.MaxHops, Left: n.Left, MessageID: n.MessageID,
	}
	if n.Before != "" {
		var before agentbus.Hop
		payload, ok := tokenPayload(n.Before)
		if !ok || json.Unmarshal(payload, &before) != nil {
			return "", false, errors.New("identity: the hop before is no token")
		}
		hop.Before, hop.Chain, hop.Subject = HopDigest(n.Before), before.Chain, before.Subject
		hop.Path = slices.Clone(before.Path)
		if same := max(hop.Hop-1, 0); len(hop.Path) > same { // a gateway sends the same hop on: it vouches for its caller
			hop.Path = hop.Path[:same]
		}
		hop.Expires, hop.MaxHops = min(hop.Expires, before.Expires), min(hop.MaxHops, before.MaxHops)
		hop.Issued = min(hop.Issued, hop.Expires)
		hop.Left = less(hop.Left, before.Left)
	}
	own := h.cfg.Signer.issuer + "#"
	if unsigned := hop.Hop - 1 - len(hop.Path); unsigned > 0 { // hops that nobody signed
		hop.Path = append(hop.Path, slices.Repeat([]string{own}, unsigned)...)
	}
	hop.Path = append(hop.Path, own+n.Caller)
	hop.Actor = agentbus.ActorOf(hop.Path)
	token, err = h.cfg.Signer.sign(HopType, hop)
	if err == nil && len(token) > maxHopToken { // a long way, told twice: the next agent would refuse it
		hop.Actor = nil
		token, err = h.cfg.Signer.sign(HopType, hop)
	}
	return token, !now.After(time.Unix(hop.Expires, 0).Add(evidenceSkew)), err
}

// less returns the smaller of each bound; 0 is none.
func less(a, b agentbus.HopLeft) agentbus.HopLeft {
	return agentbus.HopLeft{Calls: bound(a.Calls, b.Calls), USD: bound(a.USD, b.USD), Deadline: bound(a.Deadline, b.Deadline)}
}

func bound[T ~int64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// HopDigest returns how the hop behind a token names it: its SHA-256, in hex.
func HopDigest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Unverified returns what a token says of a hop, which nobody has verified: for
// people.
func Unverified(token string) (hop agentbus.Hop, err error) {
	payload, ok := tokenPayload(token)
	if !ok || json.Unmarshal(payload, &hop) != nil {
		return hop, noEvidence(EvidenceMalformed, "the hop is no token")
	}
	return hop, nil
}
