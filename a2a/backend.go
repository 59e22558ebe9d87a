package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// DefaultMaxAnswer is the most bytes of an answer that a Backend reads.
const DefaultMaxAnswer = 32 << 20

// Sessions keeps what a Backend knows of its conversations with an agent, across
// restarts (A24). It is safe for concurrent use.
type Sessions interface {
	// Session returns what was kept last under key.
	Session(ctx context.Context, key agentbus.Digest) (state []byte, found bool, err error)
	// KeepSession keeps state under key, in place of what was there; durable when
	// it returns.
	KeepSession(ctx context.Context, key agentbus.Digest, state []byte, at time.Time) error
}

// A BackendConfig says which A2A agent a Backend calls, and how.
type BackendConfig struct {
	// Name is the agent's own on this bus: message ids and sessions depend on it.
	// It is required.
	Name string
	// URL is where the agent is: its card, when it ends in .json; else what its
	// card stands below, or at the root of its host. When there is no card, or it
	// names another host, URL is called as a JSON-RPC endpoint: credentials go to
	// its host only (P24). It is required, and holds no credential.
	URL string
	// Endpoint says that URL is the JSON-RPC endpoint itself, whatever its path: it
	// is called wherever the card below it leads, and no card at the root of its
	// host is read, which may be another agent's (C35).
	Endpoint bool
	// Key is the agent's own credential, a whole Authorization value; none sends
	// none (P22). It is not the payer's.
	Key agentbus.Credential
	// Transport sends the requests; nil is a transport of its own. It must not
	// follow redirects.
	Transport http.RoundTripper
	// Header is added to every request. Protocol headers and Authorization are
	// errors.
	Header http.Header
	// Extensions are the URIs of the extensions that the agent is told we know (A9).
	Extensions []string
	// IsolateSessions gives every call a context of its own (K8).
	IsolateSessions bool
	// Idempotent says that the agent answers a message that comes again with what
	// it made of it the first time: only then is one sent again whose fate is not
	// known (A22).
	Idempotent bool
	// Sessions keeps contexts and tasks; nil: every call has a context of its own.
	Sessions Sessions
	// Payer tells on whose behalf a call is made: nobody else shares its session.
	// nil: on that of whoever calls.
	Payer func(context.Context) agentbus.Payer
	// MaxAnswer is the most bytes of an answer; 0 means DefaultMaxAnswer.
	MaxAnswer int64
	// AllowPlaintext lets credentials leave over plain HTTP to other hosts than
	// this one (P24).
	AllowPlaintext bool
}

// A Backend is an A2A agent, called as any other: each call is a message to it,
// and what it answers, by a message or a task, is the answer (A38). It is safe
// for concurrent use.
type Backend struct {
	config    BackendConfig
	url       *url.URL
	plaintext bool // credentials must not be sent
	http      *http.Client

	mu      sync.Mutex // guards the rest
	found   *peer
	foundAt time.Time
}

// NewBackend returns the backend that c describes, or every fault of c at once.
func NewBackend(c BackendConfig) (*Backend, error) {
	u, faults := httpx.AgentURL(c.URL, "https://agents.example/a2a", c.Header)
	if c.Name == "" {
		faults = append(faults, errors.New("name: is required"))
	}
	if c.MaxAnswer < 0 {
		faults = append(faults, errors.New("max_answer: must not be negative"))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("a2a backend: %w", errors.Join(faults...))
	}
	if c.MaxAnswer == 0 {
		c.MaxAnswer = DefaultMaxAnswer
	}
	if c.Transport == nil {
		c.Transport = httpx.Lowercase(&http.Transport{DisableCompression: true, IdleConnTimeout: 90 * time.Second})
	}
	b := &Backend{config: c, url: u, plaintext: u.Scheme == "http" && !httpx.Loopback(u.Hostname()) && !c.AllowPlaintext}
	b.http = &http.Client{Transport: &wire{backend: b}} // no Timeout: streams last as long as their call (A35)
	return b, nil
}

// Call sends the messages of c that the agent has not been told, as one message
// whose id is the same on every retry of the turn (A21), and passes on what it
// answers as it comes: text, data and links as text, what agents say beside their
// work as reasoning. Usage is what the task's metadata tells.
//
// It fails as the Backend of package openai does. A task that waits fails with
// CodeInputRequired, or CodePaymentRequired, and an Ask (R22); the Resolution of
// the call after it goes to the same task (C28). An answer that breaks off is
// looked for, once the task is known (A22); when nobody knows whether the message
// arrived, and the agent is not idempotent, the call fails with
// CodeOutcomeUnknown. A file that cannot be carried is named, with
// CodeUnsupportedContent (A38).
func (b *Backend) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		t := &talk{backend: b, call: answering(c), yield: yield, named: make(chan struct{})}
		err := t.run(context.WithValue(ctx, talkKey{}, t))
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil {
			yield(agentbus.Chunk{}, b.failure(ctx, c, err))
		}
	}
}

// answering returns c as it is sent. What answers a task that waits is another
// request than what set it off, and each turn has one (G20): its turn is named
// after the first one and after what is answered, the same on every retry.
func answering(c *agentbus.Call) *agentbus.Call {
	if c.Resolution == nil || c.Lineage.Turn == "" {
		return c
	}
	raw, _ := json.Marshal(c.Resolution) // a struct of ours
	sum := sha256.Sum256(append(raw, c.Resolution.Policy...))
	told := *c
	told.Lineage.Turn += agentbus.TurnID("-r" + hex.EncodeToString(sum[:4]))
	return &told
}

// errStopped says that the reader of an answer stopped reading.
var errStopped = errors.New("reader stopped")

// failure returns err as the caller of the backend reads it.
func (b *Backend) failure(ctx context.Context, c *agentbus.Call, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("call %s: %w: %w", b.url.Host, ctx.Err(), context.Cause(ctx))
	case ctx.Err() != nil:
		return &agentbus.Error{Code: agentbus.CodeDeadlineExceeded, Message: "the agent did not answer in time", Err: err}
	}
	out := agentbus.AsError(err)
	if theirs, ok := errors.AsType[*Error](err); ok {
		out = theirs.Bus()
	} else if _, ours := errors.AsType[*agentbus.Error](err); !ours {
		out = &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent cannot be reached, or answered what is no A2A", Err: err}
	}
	told := *out // it may be shared
	told.Message = c.Lineage.Auth.Redact(b.config.Key.Redact(told.Message))
	return &told
}

// messageID returns the id of the message of a call (A21): the same on every
// retry and after a crash. A call outside of any turn has one of its own.
func messageID(l *agentbus.Lineage, target string, more ...string) string {
	if l.Turn == "" {
		return "m_" + strings.TrimPrefix(string(agentbus.NewRunID()), "run_")
	}
	h := sha256.New()
	for i, s := range append([]string{string(l.Run), l.Path, string(l.Parent), string(l.Turn), target}, more...) {
		if i > 0 {
			h.Write([]byte{0})
		}
		h.Write([]byte(s))
	}
	return "m_" + hex.EncodeToString(h.Sum(nil)[:16])
}
