package agentbustest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/openai"
)

// An Agent is an agent of a [Bus]: an HTTP server of its own, which the bus knows
// by its URL. The first of these that is set says what it does.
type Agent struct {
	Handler http.Handler     // your agent as an HTTP server: it serves POST /v1/chat/completions
	Backend agentbus.Backend // your agent as a Backend, spoken to in the OpenAI dialect
	// Answers are given in order, one a request, and the last one ever after.
	// None: it says "ok".
	Answers []Answer
}

// An Answer is what a scripted agent does when it is asked. The zero Answer is an
// empty text.
type Answer struct {
	After time.Duration // how long it thinks before it does anything
	Text  string        // said word by word, where a stream is asked for
	// Usage is what it reports; nil: a token a word. An agent whose YAML says
	// usage_cost: true is paid Usage.Cost.
	Usage *agentbus.Usage

	// How it fails; at most one of them.
	Status int  // it answers with this HTTP status, and Text as the message
	Cut    bool // the connection breaks when it has said Text
	Hang   bool // it says Text, and then nothing until its caller leaves

	RetryAfter time.Duration // with Status: how long it asks to wait, rounded up to seconds; 0: it does not say
}

// A Request is what an agent was sent.
type Request struct {
	Header http.Header
	Body   []byte
	// Lineage is what Header says of run, turn, parent, depth and speaker.
	Lineage agentbus.Lineage
	// Messages are the texts of Body.
	Messages []agentbus.Message
}

// served is an agent that is being served.
type served struct {
	url   string
	agent Agent

	mu   sync.Mutex // guards seen
	seen []Request
}

// serve serves a until the test ends.
func (a Agent) serve(t T, name string) *served {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("agentbustest: listen for agent %s: %v", name, err)
	}
	s := &served{url: "http://" + l.Addr().String(), agent: a}
	if a.Handler == nil && a.Backend == nil && len(a.Answers) == 0 {
		s.agent.Answers = []Answer{{Text: "ok"}}
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("agentbustest: agent %s still answers %s after its bus has ended: %v", name, patience, errors.Join(err, server.Close()))
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("agentbustest: agent %s: %v", name, err)
		}
	})
	return s
}

// patience is how long an agent may take to return once nobody waits for its
// answer any more.
const patience = 5 * time.Second

// ServeHTTP remembers the request, and does what the agent does.
func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // who asked has gone
	}
	n := s.remember(r.Header, body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch a := s.agent; {
	case a.Handler != nil:
		a.Handler.ServeHTTP(w, r)
	case a.Backend != nil:
		openai.Handler(openai.HandlerConfig{Backend: a.Backend}).ServeHTTP(w, r)
	default:
		a.Answers[min(n, len(a.Answers)-1)].serve(w, r)
	}
}

// remember keeps a request and returns how many came before it.
func (s *served) remember(h http.Header, body []byte) int {
	got := Request{Header: h.Clone(), Body: body}
	got.Lineage, _ = agentbus.ParseLineage(h) // the bus writes it; a test that sends it sees the rest
	var said struct {
		Messages []struct {
			Role    agentbus.Role `json:"role"`
			Content any           `json:"content"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(body, &said) // an agent may be sent anything
	for _, m := range said.Messages {
		text, _ := m.Content.(string)
		got.Messages = append(got.Messages, agentbus.Message{Role: m.Role, Content: text})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, got)
	return len(s.seen) - 1
}

func (s *served) requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// serve gives the answer to one request.
func (a Answer) serve(w http.ResponseWriter, r *http.Request) {
	if !wait(r.Context(), a.After) {
		return
	}
	if a.Status == 0 {
		openai.Handler(openai.HandlerConfig{Backend: agentbus.BackendFunc(a.say)}).ServeHTTP(w, r)
		return
	}
	if a.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((a.RetryAfter+time.Second-1)/time.Second), 10))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": a.Text}}) // who has left is not told
}

// say says the answer, as far as it goes.
func (a Answer) say(ctx context.Context, c *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
	return func(yield func(agentbus.Chunk, error) bool) {
		for word := range strings.SplitAfterSeq(a.Text, " ") {
			if word != "" && !yield(agentbus.Chunk{Text: word}, nil) {
				return
			}
		}
		if a.Hang {
			<-ctx.Done()
			yield(agentbus.Chunk{}, ctx.Err())
			return
		}
		if a.Cut {
			panic(http.ErrAbortHandler) //nolint:forbidigo // how a handler says that its connection is to break
		}
		usage := a.Usage
		if usage == nil {
			usage = &agentbus.Usage{OutputTokens: int64(len(strings.Fields(a.Text)))}
			for _, m := range c.Messages {
				usage.InputTokens += int64(len(strings.Fields(m.Content)))
			}
		}
		yield(agentbus.Chunk{Usage: usage, Model: "scripted", Finish: "stop"}, nil)
	}
}

// wait reports whether it has waited for d, and nobody has left meanwhile.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
