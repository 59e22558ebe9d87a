package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
)

// says is a backend that gives these chunks, then err unless it is nil.
func says(err error, chunks ...agentbus.Chunk) agentbus.Backend {
	return agentbus.BackendFunc(func(context.Context, *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for _, c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
			if err != nil {
				yield(agentbus.Chunk{}, err)
			}
		}
	})
}

var varying = regexp.MustCompile(`"(id":"chatcmpl-)[A-Z0-9]+|"(created":)\d+`)

// post sends body to a handler and returns the answer without what varies.
func post(t *testing.T, c openai.HandlerConfig, body string, header ...string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	openai.Handler(c).ServeHTTP(w, r)
	return w, varying.ReplaceAllString(w.Body.String(), `"$1$2`)
}

const ask = `{"model":"critic","messages":[{"role":"user","content":"hi"}]}`

func TestHandlerWhole(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := openai.HandlerConfig{Log: slog.New(slog.NewTextHandler(&log, nil)), Backend: says(nil,
		agentbus.Chunk{Text: "void"}, agentbus.Chunk{Void: true, Text: "<yes>", Reasoning: "hm", Model: "m"},
		agentbus.Chunk{ToolCall: &agentbus.ToolCall{ID: "a", Name: "f", Arguments: "{}"}},
		agentbus.Chunk{Usage: &agentbus.Usage{InputTokens: 7, CachedTokens: 5, OutputTokens: 3, Cost: 4000}})}
	w, body := post(t, c, ask)
	const want = `{"id":"chatcmpl-","object":"chat.completion","created":,"model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"<yes>","reasoning_content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":5},"cost":0.004000}}`
	if diff := cmp.Diff(want, body); diff != "" || w.Code != http.StatusOK || log.Len() > 0 {
		t.Errorf("status %d, log %q, body (-want +got)\n%s", w.Code, log.String(), diff)
	}
	if w.Header().Get("Content-Type") != "application/json" {
		t.Error(w.Header())
	}
}

const askStream = `{"model":"critic","stream":true,"messages":[{"role":"user","content":"hi"}]}`

const askUsage = `{"model":"critic","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`

func TestHandlerStream(t *testing.T) {
	t.Parallel()
	frame := func(choices, rest string) string {
		return `data: {"id":"chatcmpl-","object":"chat.completion.chunk","created":,"model":"critic","choices":[` + choices + `]` + rest + "}\n\n"
	}
	first := frame(`{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}`, "")
	stop := frame(`{"index":0,"delta":{},"finish_reason":"stop"}`, "")
	const done = "data: [DONE]\n\n"
	for name, c := range map[string]struct {
		chunks []agentbus.Chunk
		err    error
		ask    string
		want   string
	}{
		"text": {
			chunks: []agentbus.Chunk{{Text: "a"}, {Text: "b"}, {Usage: &agentbus.Usage{InputTokens: 1}}},
			want: first + frame(`{"index":0,"delta":{"content":"b"},"finish_reason":null}`, "") + // G26: told to who did not ask
				frame(`{"index":0,"delta":{},"finish_reason":"stop"}`, `,"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}`) + done,
		},
		"usage": {
			chunks: []agentbus.Chunk{{Text: "a", Usage: &agentbus.Usage{InputTokens: 1}, Finish: "length"}},
			ask:    askUsage,
			want: first + frame(`{"index":0,"delta":{},"finish_reason":"length"}`, "") +
				frame("", `,"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}`) + done,
		},
		"no usage": { // G26: none is told, not zeros
			chunks: []agentbus.Chunk{{Text: "a", Usage: &agentbus.Usage{}}},
			ask:    askUsage,
			want:   first + stop + done,
		},
		"tool calls": {
			chunks: []agentbus.Chunk{{ToolCall: &agentbus.ToolCall{ID: "a", Name: "f", Arguments: "{}"}}, {ToolCall: &agentbus.ToolCall{ID: "b", Name: "g"}}},
			want: frame(`{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":null}`, "") +
				frame(`{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]},"finish_reason":null}`, "") +
				frame(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`, "") + done,
		},
		"void before a byte": {chunks: []agentbus.Chunk{{Finish: "length"}, {Void: true}, {Text: "a"}}, want: first + stop + done},
		"void after a byte": {
			chunks: []agentbus.Chunk{{Text: "a"}, {Void: true, Text: "b"}},
			want: first + `data: {"error":{"message":"the agent failed after it had begun to answer; what was said before is void","type":"server_error",` +
				`"param":null,"code":"agent_unavailable","retryable":true,"explain":{"next":"ask again; without stream, a failed attempt never shows"}}}` + "\n\n",
		},
		"error after a byte": {
			chunks: []agentbus.Chunk{{Text: "a"}},
			err:    &agentbus.Error{Code: agentbus.CodeChainFinal, Message: "no"},
			want:   first + `data: {"error":{"message":"no","type":"invalid_request_error","param":null,"code":"chain_final","retryable":false}}` + "\n\n",
		},
		"nothing": {want: frame(`{"index":0,"delta":{"role":"assistant"},"finish_reason":"stop"}`, "") + done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.ask == "" {
				c.ask = askStream
			}
			w, body := post(t, openai.HandlerConfig{Backend: says(c.err, c.chunks...)}, c.ask)
			if diff := cmp.Diff(c.want, body); diff != "" || w.Header().Get("Content-Type") != "text/event-stream" || !w.Flushed {
				t.Errorf("header %v, body (-want +got)\n%s", w.Header(), diff)
			}
		})
	}
}

// An error before the first byte has its status, for streams too.
func TestHandlerErrors(t *testing.T) {
	t.Parallel()
	refusal := says(&agentbus.Error{Code: agentbus.CodeDepthExceeded, Message: "no", Err: errors.New("cause")})
	for name, c := range map[string]struct {
		body   string
		header []string
		status int
		code   agentbus.Code
		says   string
	}{
		"refusal":            {body: ask, status: 429, code: agentbus.CodeDepthExceeded, says: "no"},
		"refusal of stream":  {body: askStream, status: 429, code: agentbus.CodeDepthExceeded},
		"depth":              {body: ask, header: []string{"x-tangle-forwarded-depth", "-1"}, status: 400, code: agentbus.CodeInvalidDepth},
		"twice":              {body: ask, header: []string{"x-tangle-runid", "a", "x-tangle-runid", "b"}, status: 400, code: agentbus.CodeDuplicateHeader},
		"version":            {body: ask, header: []string{"x-tangle-protocol-version", "1"}, status: 400, code: agentbus.CodeUnsupportedVersion},
		"not JSON":           {body: "{", status: 400, code: agentbus.CodeInvalidRequest},
		"trailing":           {body: ask + "x", status: 400, code: agentbus.CodeInvalidRequest},
		"no messages":        {body: `{"model":"critic"}`, status: 400, code: agentbus.CodeInvalidRequest, says: "messages"},
		"role":               {body: `{"model":"critic","messages":[{"role":"king","content":"hi"}]}`, status: 400, code: agentbus.CodeInvalidRequest, says: `messages[0].role`},
		"two answers":        {body: `{"model":"critic","n":2,"messages":[{"role":"user"}]}`, status: 400, code: agentbus.CodeInvalidRequest, says: "n:"},
		"negative maximum":   {body: `{"model":"critic","max_tokens":-2,"messages":[{"role":"user"}]}`, status: 400, code: agentbus.CodeInvalidRequest, says: "max_tokens"},
		"image":              {body: `{"model":"critic","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, status: 415, code: agentbus.CodeUnsupportedContent, says: "image_url"},
		"less than none":     {body: `{"model":"critic","n":-1,"messages":[{"role":"user"}]}`, status: 400, code: agentbus.CodeInvalidRequest, says: "n:"},
		"no list":            {body: `{"model":"critic","messages":{"role":"user"}}`, status: 400, code: agentbus.CodeInvalidRequest, says: `"message":"messages: object is no value for it"`},
		"no whole number":    {body: wishing(`"max_tokens":1.5`), status: 400, code: agentbus.CodeInvalidRequest, says: `"message":"max_tokens: number 1.5 is no value for it"`},
		"no object":          {body: `"critic"`, status: 400, code: agentbus.CodeInvalidRequest, says: `"message":"the request body must be an object, not string"`},
		"no role":            {body: `{"model":"critic","messages":[{"role":7}]}`, status: 400, code: agentbus.CodeInvalidRequest, says: `messages.role: number is no value for it`},
		"a schema":           {body: wishing(`"response_format":{"type":"json_schema","json_schema":{"name":"s"}}`), status: 415, code: agentbus.CodeUnsupportedContent, says: "response_format: this agent cannot be held to json_schema"},
		"JSON":               {body: wishing(`"stream":true,"response_format":{"type":"json_object"}`), status: 415, code: agentbus.CodeUnsupportedContent, says: "json_object"},
		"a form of no kind":  {body: wishing(`"response_format":7`), status: 415, code: agentbus.CodeUnsupportedContent, says: "held to unknown"},
		"a tool required":    {body: wishing(`"tools":[{}],"tool_choice":"required"`), status: 415, code: agentbus.CodeUnsupportedContent, says: "tool_choice"},
		"a tool named":       {body: wishing(`"tools":[{}],"tool_choice":{"type":"function","function":{"name":"f"}}`), status: 415, code: agentbus.CodeUnsupportedContent, says: "tool_choice"},
		"one of several":     {body: wishing(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required"}}`), status: 415, code: agentbus.CodeUnsupportedContent, says: "held to required"},
		"a function named":   {body: wishing(`"functions":[{}],"function_call":{"name":"f"}`), status: 415, code: agentbus.CodeUnsupportedContent, says: "function_call"},
		"a voice":            {body: wishing(`"modalities":["text","audio"]`), status: 415, code: agentbus.CodeUnsupportedContent, says: "audio"},
		"unknown model":      {body: `{"model":"x","messages":[{"role":"user"}]}`, status: 404, code: agentbus.CodeAgentNotFound, says: "critic"},
		"too large":          {body: `{"model":"critic","messages":[{"role":"user","content":"` + strings.Repeat("x", 1000) + `"}]}`, status: 413, code: agentbus.CodeRequestTooLarge},
		"content of a kind":  {body: `{"model":"critic","messages":[{"role":"user","content":7}]}`, status: 400, code: agentbus.CodeInvalidRequest},
		"a part of no shape": {body: `{"model":"critic","messages":[{"role":"user","content":[7]}]}`, status: 400, code: agentbus.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, body := post(t, openai.HandlerConfig{Backend: refusal, Models: []string{"critic"}, MaxBody: 500}, c.body, c.header...)
			if w.Code != c.status || !strings.Contains(body, `"code":"`+string(c.code)+`"`) || !strings.Contains(body, c.says) || strings.Contains(body, "cause") {
				t.Errorf("got %d %s, want %d %s", w.Code, body, c.status, c.code)
			}
			if w.Header().Get("X-Should-Retry") != "false" { // P12
				t.Errorf("header %v", w.Header())
			}
		})
	}
}

// The lineage of the headers and the conversation of the body reach the
// backend; unknown fields do not matter.
func TestHandlerCall(t *testing.T) {
	t.Parallel()
	var got *agentbus.Call
	b := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		got = c
		return agentbus.Chunk{Text: "ok"}, nil
	})
	w, body := post(t, openai.HandlerConfig{Backend: b}, `{"model":"critic","seed":7,"logit_bias":{},"max_tokens":5,"max_completion_tokens":6,"messages":[
		{"role":"developer","content":"be brief"},
		{"role":"user","name":"u","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"42"}]}`,
		"X-Tangle-RunId", "r", "x-tangle-turnid", "r.t0.a", "x-tangle-forwarded-depth", "2", "x-tangle-forwarded-authorization", "Bearer U")
	if w.Code != http.StatusOK {
		t.Fatal(body)
	}
	if got.Lineage.Auth.Reveal() != "Bearer U" {
		t.Error("the credential was lost")
	}
	got.Lineage.Auth = agentbus.Credential{}
	want := &agentbus.Call{
		Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.a", Depth: 2}, Agent: "critic", MaxTokens: 6,
		Messages: []agentbus.Message{
			{Role: agentbus.RoleSystem, Content: "be brief"},
			{Role: agentbus.RoleUser, Content: "ab", Name: "u"},
			{Role: agentbus.RoleAssistant, ToolCalls: []agentbus.ToolCall{{ID: "c1", Name: "f", Arguments: "{}"}}},
			{Role: agentbus.RoleTool, Content: "42", ToolCallID: "c1"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(agentbus.Credential{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHandlerModels(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/models", "/models"} {
		w := httptest.NewRecorder()
		openai.Handler(openai.HandlerConfig{Models: []string{"a", "b"}}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		const want = `{"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"agentbus"},{"id":"b","object":"model","created":0,"owned_by":"agentbus"}]}`
		if w.Body.String() != want {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

// A caller that leaves stops the backend, and the handler says why in its log.
// wishing is a request that says more of its answer.
func wishing(more string) string {
	return `{"model":"critic","messages":[{"role":"user","content":"hi"}],` + more + `}`
}

// G2: what a request offers, and no backend is told, is served without, and said;
// what asks for nothing is not said.
func TestHandlerIgnores(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{
		`"tools":[{"type":"function"}],"tool_choice":"auto"`: "tools", `"tools":[{}],"tool_choice":{"type":"none"}`: "tools", `"tools":[{}],"stream":true`: "tools",
		`"tools":[{}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}`:                                               "tools",
		`"functions":[{}],"function_call":"none","stop":"x","logprobs":true,"web_search_options":{}`:                                        "functions, stop, logprobs, web_search_options",
		`"tools":[],"tool_choice":null,"functions":null,"stop":"","logprobs":false,"response_format":{"type":"text"},"modalities":["text"]`: "",
		`"response_format":null,"tool_choice":"","temperature":0,"seed":1,"user":"u"`:                                                       "",
	} {
		w, body := post(t, openai.HandlerConfig{Backend: says(nil, agentbus.Chunk{Text: "yes"})}, wishing(more))
		if got := w.Header().Get(openai.HeaderIgnored); w.Code != http.StatusOK || got != want || !strings.Contains(body, "yes") {
			t.Errorf("%s: %d, ignored %q, want %q\n%s", more, w.Code, got, want, body)
		}
	}
}

// TestHandlerElsewhere: G1, an agent of another kind speaks no API of responses;
// also what is not here is told in the shape that clients read.
func TestHandlerElsewhere(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]agentbus.Code{
		"POST /v1/responses": agentbus.CodeUnsupportedContent, "POST /responses": agentbus.CodeUnsupportedContent,
		"POST /v1/embeddings": agentbus.CodeAgentNotFound, "POST /v1/models": agentbus.CodeAgentNotFound, "GET /": agentbus.CodeAgentNotFound,
	} {
		method, path, _ := strings.Cut(at, " ")
		w := httptest.NewRecorder()
		openai.Handler(openai.HandlerConfig{Backend: says(nil)}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(ask)))
		var body struct{ Error struct{ Code agentbus.Code } }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error.Code != want || w.Code != want.Status() || w.Header().Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s %v", at, w.Code, w.Body, w.Header())
		}
	}
}

func TestHandlerCallerLeaves(t *testing.T) {
	t.Parallel()
	stopped := false
	endless := agentbus.BackendFunc(func(ctx context.Context, _ *agentbus.Call) iter.Seq2[agentbus.Chunk, error] {
		return func(yield func(agentbus.Chunk, error) bool) {
			for yield(agentbus.Chunk{Text: "x"}, ctx.Err()) {
			}
			stopped = true
		}
	})
	b, err := openai.New(openai.Config{URL: "http://localhost", Transport: httpx.Memory(openai.Handler(openai.HandlerConfig{Backend: endless}))})
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range b.Call(t.Context(), call()) {
		if err != nil || c.Text != "" {
			break
		}
	}
	if !stopped {
		t.Error("the backend runs on")
	}
}

// Both directions undo each other, with errors in the middle too.
func TestBothDirections(t *testing.T) {
	t.Parallel()
	want := agentbus.Reply{
		Text: "aé", Reasoning: "hm", Model: "m", Finish: "length",
		ToolCalls: []agentbus.ToolCall{{ID: "a", Name: "f", Arguments: `{"x":"<1>"}`}},
		Usage:     agentbus.Usage{InputTokens: 7, CachedTokens: 5, OutputTokens: 3, Cost: 1},
	}
	through := func(b agentbus.Backend) (agentbus.Reply, error) {
		client, err := openai.New(openai.Config{URL: "http://localhost/v1", Transport: httpx.Memory(openai.Handler(openai.HandlerConfig{Backend: b}))})
		if err != nil {
			t.Fatal(err)
		}
		return agentbus.Collect(client.Call(t.Context(), call()))
	}
	got, err := through(says(nil, agentbus.Chunk{Text: "a", Reasoning: "hm", Model: "m"}, agentbus.Chunk{Text: "é"},
		agentbus.Chunk{ToolCall: &want.ToolCalls[0]}, agentbus.Chunk{Usage: &want.Usage, Finish: "length"}))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	refusal := &agentbus.Error{Code: agentbus.CodeCycleRefused, Message: "no", Explain: &agentbus.Explain{Rule: "C3", Observed: "x"}}
	for _, chunks := range [][]agentbus.Chunk{nil, {{Text: "a"}}} {
		_, err := through(says(refusal, chunks...))
		got := agentbus.AsError(err)
		if got.Code != refusal.Code || got.Message != "no" || !cmp.Equal(got.Explain, refusal.Explain) {
			t.Errorf("after %d chunks: got %+v", len(chunks), got)
		}
	}
}

// FuzzRequest: whatever is posted is answered with JSON and a status, and never
// with a failure of ours.
func FuzzRequest(f *testing.F) {
	f.Add(ask)
	f.Add(askStream)
	f.Add(`{"messages":[{"role":"tool","content":[{"type":"text","text":"\ud800"}],"tool_calls":[{"function":{"arguments":{}}}]}]}`)
	f.Add(`{"messages":[null],"n":-1}`)
	echo := agentbus.Answer(func(_ context.Context, c *agentbus.Call) (agentbus.Chunk, error) {
		return agentbus.Chunk{Text: c.Messages[0].Content}, nil
	})
	h := openai.Handler(openai.HandlerConfig{Backend: echo})
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/chat/completions", strings.NewReader(body)))
		raw, _ := io.ReadAll(w.Body)
		if w.Code >= 500 {
			t.Errorf("%d %s", w.Code, raw)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(raw) {
			t.Errorf("no JSON: %s", raw)
		}
	})
}
