package openai

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// DefaultMaxAnswer is the most bytes of an answer that are read.
const DefaultMaxAnswer = 32 << 20

// A Config says which agent a Backend calls.
type Config struct {
	// URL is the base under which /chat/completions is, such as
	// "https://agents.example/v1". It is required, and holds no credential.
	URL string
	// Model is what is asked for; "" asks for the Agent of each call.
	Model string
	// Key is the agent's own credential, a whole Authorization value; none
	// sends none (P22). It is not the payer's.
	Key agentbus.Credential
	// Transport sends the requests; nil is a transport of its own, which uses
	// the proxy of the environment and keeps idle connections for 90 seconds.
	Transport http.RoundTripper
	// Header is added to every request. Protocol headers and Authorization are
	// errors.
	Header http.Header
	// MaxAnswer is the most bytes of an answer; 0 means DefaultMaxAnswer,
	// negative is an error.
	MaxAnswer int64
	// AllowPlaintext lets credentials leave over plain HTTP to other hosts than
	// this one (P24).
	AllowPlaintext bool
}

// A Backend is an agent behind an OpenAI-compatible URL. It is safe for
// concurrent use.
type Backend struct {
	config    Config
	url       *url.URL
	plaintext bool // credentials must not be sent
}

// New returns the backend that c describes, or every fault of c at once.
func New(c Config) (*Backend, error) {
	u, faults := httpx.AgentURL(c.URL, "https://agents.example/v1", c.Header)
	if c.MaxAnswer < 0 {
		faults = append(faults, errors.New("max_answer: must not be negative"))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("openai backend: %w", errors.Join(faults...))
	}
	if c.MaxAnswer == 0 {
		c.MaxAnswer = DefaultMaxAnswer
	}
	if c.Transport == nil {
		c.Transport = httpx.Lowercase(newTransport())
	}
	plaintext := u.Scheme == "http" && !httpx.Loopback(u.Hostname()) && !c.AllowPlaintext
	return &Backend{config: c, url: u.JoinPath("chat/completions"), plaintext: plaintext}, nil
}

// newTransport returns a transport like the standard one, without its
// compression, which would hold back a stream.
func newTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return &http.Transport{DisableCompression: true}
	}
	t = t.Clone()
	t.DisableCompression = true
	return t
}

// Call asks the agent, as a stream; an agent that answers with a whole is read
// as well. Text and reasoning are passed on as they come, tool calls whole,
// then usage, model and finish in one last chunk.
//
// It fails with CodeForbidden, and sends nothing, when a credential would leave
// over plain HTTP (P24); with CodeAgentRedirected on a redirect, which is never
// followed (P23); with the code of the bus that the agent's error body names
// (P11), else with CodeAgentUnavailable, also when the connection fails or the
// answer is cut or broken; with CodeDeadlineExceeded when time ran out; with
// the context's error, wrapped, when the caller left. Error.Status is what the
// agent answered.
func (b *Backend) Call(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		emit := func(c agentbus.Chunk) error {
			if !yield(c, nil) {
				return errStopped
			}
			return nil
		}
		if err := b.call(ctx, c, emit); err != nil && !errors.Is(err, errStopped) {
			yield(agentbus.Chunk{}, err)
		}
	}
}

// errStopped says that the reader of an answer stopped reading.
var errStopped = errors.New("reader stopped")

func (b *Backend) call(ctx context.Context, c *agentbus.Call, emit func(agentbus.Chunk) error) error {
	r, err := b.request(ctx, c)
	if err != nil {
		return err
	}
	resp, err := b.config.Transport.RoundTrip(r) // not a client: it would follow redirects (P23)
	if err != nil {
		return b.broken(ctx, "the agent cannot be reached", err)
	}
	defer func() { _ = resp.Body.Close() }() // what could fail has been read
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return b.refused(ctx, c, resp)
	}
	a := &answer{backend: b, call: c, emit: emit, resp: resp}
	if strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/event-stream") {
		return a.readStream(ctx)
	}
	return a.readWhole(ctx)
}

// message is a message as it is sent.
type message struct {
	Role       agentbus.Role `json:"role"`
	Content    *string       `json:"content"`
	Name       string        `json:"name,omitempty"`
	ToolCalls  []toolCall    `json:"tool_calls,omitempty"`
	ToolCallID string        `json:"tool_call_id,omitempty"`
}

// request is a request as it is sent.
type request struct {
	Model         string    `json:"model"`
	Stream        bool      `json:"stream"`
	StreamOptions any       `json:"stream_options"`
	Messages      []message `json:"messages"`
	MaxTokens     int       `json:"max_tokens,omitempty"`
	Temperature   *float64  `json:"temperature,omitempty"`
}

// request writes c as an HTTP request.
func (b *Backend) request(ctx context.Context, c *agentbus.Call) (*http.Request, error) {
	if b.plaintext && (!c.Lineage.Auth.IsZero() || !b.config.Key.IsZero()) {
		return nil, &agentbus.Error{
			Code: agentbus.CodeForbidden, Message: "a credential would leave over plain HTTP to " + b.url.Hostname() + "; nothing was sent",
			Explain: &agentbus.Explain{Rule: "P24", Observed: "http", Supported: []string{"https", "loopback"}, Next: "use https, or set allow_plaintext for this agent"},
		}
	}
	body := request{Stream: true, StreamOptions: includeUsage{true}, MaxTokens: c.MaxTokens, Temperature: c.Temperature}
	body.Model = cmp.Or(c.Model, b.config.Model, c.Agent)
	body.Messages = make([]message, len(c.Messages))
	for i := range c.Messages {
		body.Messages[i] = wireMessage(&c.Messages[i])
	}
	raw, err := marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url.String(), bytes.NewReader(raw)) // the URL is the operator's
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	r.GetBody = nil // nobody sends it twice
	for name, values := range b.config.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream, application/json")
	r.Header.Set("TE", "trailers") // a bus tells the cost of a stream behind it
	if !b.config.Key.IsZero() {
		r.Header.Set("Authorization", b.config.Key.Reveal()) //nolint:forbidigo // the agent's own key goes to the agent (P22)
	}
	c.Lineage.SetHeaders(r.Header)
	return r, nil
}

type includeUsage struct {
	IncludeUsage bool `json:"include_usage"`
}

func wireMessage(m *agentbus.Message) message {
	out := message{Role: m.Role, Name: m.Name, ToolCallID: m.ToolCallID}
	if m.Content != "" || len(m.ToolCalls) == 0 {
		out.Content = &m.Content
	}
	for _, t := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, wireToolCall(t, nil))
	}
	return out
}

// body reads an answer up to the limit.
type body struct {
	src  io.Reader
	left int64
}

var errTooLong = errors.New("answer is too long")

// Read fails with errTooLong beyond the limit.
func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if n, err := io.ReadFull(b.src, make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, errTooLong
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
