package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/gateway"
)

// A peer is an agent on the SDK of A2A: it says back what it is told, in pieces.
type peer struct{}

func (peer) Execute(_ context.Context, e *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		text := e.Message.Parts[0].Text()
		switch {
		case text == "refuse":
			yield(nil, sdk.ErrUnsupportedContentType)
			return
		case text == "message":
			yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("plain")), nil)
			return
		case e.StoredTask == nil && !yield(sdk.NewSubmittedTask(e, e.Message), nil):
			return
		}
		if !yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateWorking, nil), nil) {
			return
		}
		if text == "ask" {
			yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateInputRequired, sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewTextPart("which?"))), nil)
			return
		}
		part := sdk.NewArtifactEvent(e, sdk.NewTextPart("you said <"+text+">"))
		more := sdk.NewArtifactUpdateEvent(e, part.Artifact.ID, sdk.NewTextPart(strings.Repeat("é", 20_000)))
		if yield(part, nil) && yield(more, nil) {
			yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateCompleted, nil), nil)
		}
	}
}

func (peer) Cancel(_ context.Context, e *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		yield(sdk.NewStatusUpdateEvent(e, sdk.TaskStateCanceled, nil), nil)
	}
}

// said keeps the bodies that passed a place, in their order.
type said struct {
	mu   sync.Mutex
	list []*bytes.Buffer
}

func (s *said) next() *bytes.Buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &bytes.Buffer{}
	s.list = append(s.list, b)
	return b
}

// texts returns the bodies and forgets them.
func (s *said) texts() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.list {
		all = append(all, b.String())
	}
	s.list = nil
	return all
}

type sayingWriter struct {
	http.ResponseWriter
	to io.Writer
}

func (w sayingWriter) Write(b []byte) (int, error) {
	_, _ = w.to.Write(b)
	return w.ResponseWriter.Write(b)
}

func (w sayingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// newPeer starts a peer that serves both bindings and a card. What it answers to
// anything but the card is kept.
func newPeer(t *testing.T) (*agent, *said) {
	t.Helper()
	h := a2asrv.NewHandler(peer{}, a2asrv.WithLogger(slog.New(slog.DiscardHandler)), a2asrv.WithExtendedAgentCard(&sdk.AgentCard{Name: "peer, extended", SupportedInterfaces: []*sdk.AgentInterface{}}))
	mux, answered := http.NewServeMux(), &said{}
	saying := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(sayingWriter{w, answered.next()}, r) })
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.Handle("/invoke", saying(a2asrv.NewJSONRPCHandler(h)))
	mux.Handle("/v/", saying(http.StripPrefix("/v", a2asrv.NewRESTHandler(h))))
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&sdk.AgentCard{
		Name: "peer", Version: "1", Capabilities: sdk.AgentCapabilities{Streaming: true, ExtendedAgentCard: true},
		SupportedInterfaces: []*sdk.AgentInterface{sdk.NewAgentInterface(srv.URL+"/invoke", sdk.TransportProtocolJSONRPC), sdk.NewAgentInterface(srv.URL+"/v", sdk.TransportProtocolHTTPJSON)},
	}))
	a := &agent{Target: target(t, "peer", srv.URL), heard: make(chan *heard)}
	a.Kind, a.A2A = "a2a", &gateway.A2AAgent{}
	return a, answered
}

// A reader adds a credential to each request, and keeps what is answered.
type reader struct {
	said
	base http.RoundTripper
}

func (r *reader) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+aliceKey)
	resp, err := r.base.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, r.next()), resp.Body}
	}
	return resp, err
}

// talk is one conversation with a peer, and what came of each step.
func talk(t *testing.T, c *a2aclient.Client) (steps []string) {
	t.Helper()
	ctx := t.Context()
	step := func(name string, v any, err error) {
		steps = append(steps, fmt.Sprintf("%s: %s %v", name, shape(v), err))
	}
	send := func(text string, task sdk.TaskID) *sdk.SendMessageRequest {
		m := sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart(text))
		m.TaskID = task
		return &sdk.SendMessageRequest{Message: m}
	}
	result, err := c.SendMessage(ctx, send("hello", ""))
	step("send", result, err)
	task, _ := result.(*sdk.Task)
	if task == nil {
		t.Fatalf("%v, %v", result, err)
	}
	got, err := c.GetTask(ctx, &sdk.GetTaskRequest{ID: task.ID})
	step("get", got, err)
	_, err = c.CancelTask(ctx, &sdk.CancelTaskRequest{ID: task.ID})
	step("cancel", nil, err)
	_, err = c.GetTask(ctx, &sdk.GetTaskRequest{ID: "nobody's"})
	step("get nothing", nil, err)
	result, err = c.SendMessage(ctx, send("message", ""))
	step("message", result, err)
	result, err = c.SendMessage(ctx, send("refuse", ""))
	step("refuse", result, err)
	for _, text := range []string{"hello", "message", "refuse", "ask"} {
		for event, err := range c.SendStreamingMessage(ctx, send(text, "")) {
			step("stream "+text, event, err)
		}
	}
	result, err = c.SendMessage(ctx, send("ask", ""))
	step("ask", result, err)
	if asked, ok := result.(*sdk.Task); ok {
		result, err = c.SendMessage(ctx, send("this one", asked.ID))
		step("answer", result, err)
	}
	for event, err := range c.SubscribeToTask(ctx, &sdk.SubscribeToTaskRequest{ID: task.ID}) {
		step("subscribe", event, err)
	}
	_, err = c.ListTaskPushConfigs(ctx, &sdk.ListTaskPushConfigRequest{TaskID: task.ID})
	step("push configs", nil, err)
	card, err := c.GetExtendedAgentCard(ctx, &sdk.GetExtendedAgentCardRequest{})
	step("card", card.Name, err)
	return steps
}

// shape says what is the same of two runs of one conversation.
func shape(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *sdk.Task:
		var text strings.Builder
		for _, a := range v.Artifacts {
			for _, p := range a.Parts {
				text.WriteString(" " + p.Text())
			}
		}
		return fmt.Sprintf("task %s%s, %d of history", v.Status.State, text.String(), len(v.History))
	case *sdk.Message:
		return "message " + v.Parts[0].Text()
	case *sdk.TaskStatusUpdateEvent:
		return "status " + string(v.Status.State)
	case *sdk.TaskArtifactUpdateEvent:
		return fmt.Sprintf("artifact %t %s", v.Append, v.Artifact.Parts[0].Text())
	}
	return fmt.Sprint(v)
}

// converted makes answers of the streams that begin with an error (A14).
func converted(wrote []string) []string {
	for i, s := range wrote {
		if _, data, ok := strings.Cut(s, "\ndata: "); ok && strings.HasPrefix(s, "id: ") && strings.HasPrefix(data, `{"error":`) {
			wrote[i] = strings.TrimSuffix(data, "\n\n")
		}
	}
	return wrote
}

// A2, A11, A18: the SDK's own client and server, over both bindings: what the
// server writes is what the client reads, byte for byte, and the client makes
// the same of it as without a gateway between them.
func TestA2APeers(t *testing.T) {
	t.Parallel()
	for _, binding := range []sdk.TransportProtocol{sdk.TransportProtocolJSONRPC, sdk.TransportProtocolHTTPJSON} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			a, answered := newPeer(t)
			b := newBus(t, func(c *gateway.Config) { c.A2A.DefaultAgent = "peer" }, a)
			var talks [2][]string
			for i, base := range []string{a.URL.String(), b.url} {
				r := &reader{base: transport(t)}
				client := &http.Client{Transport: r, Timeout: patience}
				card, err := agentcard.NewResolver(client).Resolve(t.Context(), base)
				if err != nil {
					t.Fatal(err)
				}
				var at []*sdk.AgentInterface
				for _, face := range card.SupportedInterfaces {
					if face.ProtocolBinding == binding {
						at = append(at, face)
					}
				}
				c, err := a2aclient.NewFromEndpoints(t.Context(), at, a2aclient.WithJSONRPCTransport(client), a2aclient.WithRESTTransport(client))
				if err != nil {
					t.Fatal(err)
				}
				r.texts() // the card
				talks[i] = talk(t, c)
				wrote, read := answered.texts(), r.texts()
				card1, card2 := len(wrote)-1, len(read)-1 // the extended card, which changes (A10)
				if i == 1 && binding == sdk.TransportProtocolHTTPJSON {
					wrote = converted(wrote)
				}
				if diff := cmp.Diff(wrote[:card1], read[:card2]); diff != "" {
					t.Errorf("through %s (-written +read):\n%.2000s", base, diff)
				}
			}
			if diff := cmp.Diff(talks[0], talks[1]); diff != "" {
				t.Errorf("(-direct +through the gateway):\n%s", diff)
			}
		})
	}
}
