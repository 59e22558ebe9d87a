package gateway

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A Router knows the agents. It is safe for concurrent use; its Targets are not
// changed once they are returned.
type Router interface {
	// Route returns the agent that name means: its name or one of its aliases,
	// exactly (G1), or its address in any of its forms (C34). It asks nobody: an
	// agent elsewhere is looked for when its Transport is used, behind the stages
	// that may refuse the call (C8).
	Route(name string) (*Target, bool)
	// Targets returns every agent, by name.
	Targets() []*Target
}

// A Target is an agent and how it is called.
type Target struct {
	Name string
	Kind string // for people: openai, builtin, conversation
	// Address is under which everybody finds the agent, such as
	// critic@example.com; none when it has none. It is compared when calls go
	// round in a circle (C12).
	Address agentbus.Address
	// ACL says who may call the agent, by evidence (C24); nil: whoever the grants
	// of callers let.
	ACL *agentbus.ACL
	// Cue tells the agent, which is a model, where in a chain of agents it
	// answers: as the first message of a chat completion, or as instructions (C9).
	Cue bool
	URL *url.URL // base of its API, such as http://127.0.0.1:9001/v1; nil with URLs
	// URLs are the bases of an agent that is reached at several, in place of URL.
	// Each call goes to the one that has the least to do (G13).
	URLs []*url.URL
	// Affinity sends all calls of one conversation of one payer to the same of
	// URLs, for as long as that one answers (G13).
	Affinity bool
	// AffinityKey is the install key, under which a conversation is drawn its URL
	// (K10): processes with the same one draw alike.
	AffinityKey []byte
	// NoLegacyParent does without the parent context of a caller that tells no
	// root context, as the root of its conversation (K2).
	NoLegacyParent bool
	Eject          Eject // when one of URLs is left out
	// NoDetach ends a call when its caller leaves, whatever Config.DetachMax says
	// (G14).
	NoDetach bool
	// Model replaces the caller's model in chat completions and responses; "":
	// the caller's is passed on.
	Model string
	// Tools are those that the agent, which is a model, may be offered, as
	// <slug>:<name> (E27); others are taken out of requests. nil: any.
	Tools []string
	// Authorization is the agent's own credential, whole; none: it is sent none (P22).
	Authorization agentbus.Credential
	// Passthrough sends the caller's Authorization to the agent (P22).
	Passthrough bool
	// AllowPlaintext lets credentials leave over plain HTTP to another machine (P24).
	AllowPlaintext bool
	Header         http.Header // set in every request (K6); of the protocol's, only those of a conversation's lineage can be
	// HeaderProvider returns headers that are set after those of Header, for
	// programs that mount a Gateway (K6); nil: there are none.
	HeaderProvider func(context.Context) http.Header
	// Kagent tells the agent on whose behalf it is called: x-user-id, and
	// x-kagent-source on the calls of runtimes (K7).
	Kagent bool
	// Secrets are what Header holds of secrets: they are taken out of what the
	// agent says in its errors, as Authorization is (P19).
	Secrets   []agentbus.Credential
	Price     agentbus.Price
	Priced    bool             // Price is known; the zero Price is then free, and otherwise unknown (G27)
	UsageCost bool             // charge what the agent reports as usage.cost, in place of Price (G26)
	MaxCost   *agentbus.Micros // the most one call can cost, and is charged (G27); nil: as Price and request say
	// Transport reaches the agent; required. It must not follow redirects.
	Transport http.RoundTripper
	// Concurrency is how many calls the agent is asked at once; 0: any number.
	// Queue is how many more may wait for a place, each for QueueTimeout; 0: 10 s
	// (G8).
	Concurrency  int
	Queue        int
	QueueTimeout time.Duration
	// RefuseUnknown answers CodeOutcomeUnknown to a call that a dead process left
	// executing, until an operator voids it; otherwise it is executed again (G24).
	RefuseUnknown bool
	// A2A says how an agent is called that speaks A2A; nil: it does not.
	A2A *A2AAgent
	// Local says that the agent lives in this process: nothing crosses a wire.
	Local bool

	now  func() time.Time     // nil: time.Now; tests set it
	pool atomic.Pointer[pool] // of URL or URLs; made at the first use, or by Table.Inherit
}

// plaintext reports whether a credential for t would cross a network in the
// clear, to whichever of its URLs, without the operator having allowed it (P24).
func (t *Target) plaintext() bool {
	if t.Local || t.AllowPlaintext {
		return false
	}
	for _, u := range t.upstreams().list {
		if u.base.Scheme != "https" && !httpx.Loopback(u.base.Hostname()) {
			return true
		}
	}
	return false
}

// A Table is a fixed set of agents.
type Table struct {
	targets   []*Target
	byName    map[string]*Target
	byAddress map[string]*Target // by the key of the address
}

// NewTable returns a Router of targets under their names, their addresses, their
// aliases and the built-in aliases bridge/<kind>/<name> and agent/<name> (G1). A configured
// name or alias goes before a built-in one; between configured ones the first
// wins, and the configuration refuses such a pair.
func NewTable(targets []*Target, aliases map[string]*Target) *Table {
	t := &Table{targets: targets, byName: make(map[string]*Target, 3*len(targets)+len(aliases)), byAddress: map[string]*Target{}}
	for _, a := range targets {
		if !a.Address.IsZero() {
			t.byAddress[a.Address.Key()] = a
		}
		t.byName["bridge/"+a.Kind+"/"+a.Name] = a
		t.byName["agent/"+a.Name] = a
	}
	maps.Copy(t.byName, aliases)
	for _, a := range targets {
		t.byName[a.Name] = a
	}
	return t
}

// Route returns the agent of that name, alias or address, and whether there is
// one. Names and aliases are exact; of an address the case does not count (G1, C34).
func (t *Table) Route(name string) (*Target, bool) {
	a, ok := t.byName[name]
	if ok || !strings.Contains(name, "@") {
		return a, ok
	}
	address, err := agentbus.ParseAddress(name)
	if err != nil {
		return nil, false
	}
	a, ok = t.byAddress[address.Key()]
	return a, ok
}

// Targets returns the agents as they were given.
func (t *Table) Targets() []*Target { return t.targets }
