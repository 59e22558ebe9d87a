package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend returns a backend in front of h, without a network.
func backend(t *testing.T, c openai.Config, h http.HandlerFunc) *openai.Backend {
	t.Helper()
	if c.URL == "" {
		c.URL = "http://localhost/v1"
	}
	c.Transport = httpx.Memory(h)
	b, err := openai.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// answers is a handler that gives one fixed answer.
func answers(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func call() *agentbus.Call {
	return &agentbus.Call{Agent: "critic", Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "MSG"}}}
}

type reference struct {
	SSE []struct {
		Name   string
		Chunks []json.RawMessage
		Events []struct {
			Type, Text, Model, FinishReason string
			ToolName, ToolCallID            string
			TokensIn, TokensOut             int64
			Args                            map[string]any
		}
	}
	Request map[string]struct {
		Request struct {
			Path    string
			Headers map[string]string
			Body    map[string]any
		}
	}
	Statuses map[string]int
}

func readReference(t *testing.T) (r reference) {
	t.Helper()
	raw, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The reference's streams. Where ours differs, it is because the reference
// takes a broken answer for a good one.
func TestGoldenStreams(t *testing.T) {
	t.Parallel()
	const cut, broken = "the answer was cut", "holds an event that is no JSON"
	differs := map[string]struct{ text, failure string }{
		"comment + event + id lines":                       {"x", cut}, // neither [DONE] nor a finish reason
		"non-JSON data becomes text":                       {"", broken},
		"plain JSON line (ndjson)":                         {"", cut},
		"pretty-printed JSON body (multi-line) is mangled": {"", cut},
		"tool call without args":                           {"", cut},
		"sandbox message.part.updated":                     {"", cut}, // another dialect
		"reasoning_content ignored":                        {"", cut}, // reasoning goes to Chunk.Reasoning
		"UTF-8 split inside a rune":                        {"é", cut},
	}
	for _, c := range readReference(t).SSE {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			got, err := agentbus.Collect(backend(t, openai.Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				for _, raw := range c.Chunks {
					_, _ = w.Write(chunkBytes(t, raw))
				}
			}).Call(t.Context(), call()))
			if d, ok := differs[c.Name]; ok {
				if got.Text != d.text || err == nil || !strings.Contains(err.Error(), d.failure) || agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable {
					t.Errorf("got %q, %v, want %q and %q", got.Text, err, d.text, d.failure)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := agentbus.Reply{}
			for _, e := range c.Events {
				switch e.Type {
				case "text_delta":
					want.Text += e.Text
				case "tool_call":
					args, _ := json.Marshal(e.Args)
					want.ToolCalls = append(want.ToolCalls, agentbus.ToolCall{ID: e.ToolCallID, Name: e.ToolName, Arguments: string(args)})
				case "llm_call":
					want.Usage = agentbus.Usage{InputTokens: e.TokensIn, OutputTokens: e.TokensOut}
				}
			}
			got.Model, got.Finish = "", ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func chunkBytes(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []byte(text)
	}
	var encoded struct{ Hex string }
	if err := json.Unmarshal(raw, &encoded); err != nil {
		t.Fatal(err)
	}
	var b []byte
	if _, err := fmt.Sscanf(encoded.Hex, "%x", &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// The reference's request. P1, P5, P8, P22: headers come from the lineage, the
// key is the agent's own, and no configuration overrides either.
func TestGoldenRequest(t *testing.T) {
	t.Parallel()
	want := readReference(t).Request["request"].Request
	var path string
	headers, body := map[string]string{}, map[string]any{}
	b := backend(t, openai.Config{
		Model: "M", Key: agentbus.NewCredential("Bearer sk-agent"), Header: http.Header{"X_extra": {"1"}, "x-twice": {"a", "b"}},
	}, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		for name, values := range r.Header {
			headers[strings.ToLower(name)] = strings.Join(values, "|")
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		answers(200, "application/json", `{"choices":[{"message":{"content":"ok"}}]}`)(w, r)
	})
	c := call()
	c.Lineage = agentbus.Lineage{Run: "r", Turn: "r.t0.a", Speaker: "a", Depth: 1, Auth: agentbus.NewCredential("Bearer U")}
	if _, err := agentbus.Collect(b.Call(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	wantHeaders := map[string]string{"x_extra": "1", "x-twice": "a|b", "accept": "text/event-stream, application/json", "te": "trailers"}
	maps.Copy(wantHeaders, want.Headers)
	if diff := cmp.Diff(wantHeaders, headers); diff != "" {
		t.Errorf("headers (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want.Body, body); diff != "" || path != want.Path {
		t.Errorf("path %s, body (-want +got)\n%s", path, diff)
	}
}

func TestRequestMessages(t *testing.T) {
	t.Parallel()
	var got string
	b := backend(t, openai.Config{}, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got = string(raw)
		answers(200, "application/json", `{"choices":[{"message":{"content":"ok"}}]}`)(w, r)
	})
	c := &agentbus.Call{Agent: "critic", MaxTokens: 5, Messages: []agentbus.Message{
		{Role: agentbus.RoleSystem, Content: "<be brief>", Name: "op"},
		{Role: agentbus.RoleAssistant, ToolCalls: []agentbus.ToolCall{{ID: "c1", Name: "f", Arguments: `{"a":1}`}}},
		{Role: agentbus.RoleTool, ToolCallID: "c1"},
	}}
	if _, err := agentbus.Collect(b.Call(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	const want = `{"model":"critic","stream":true,"stream_options":{"include_usage":true},"messages":[` +
		`{"role":"system","content":"<be brief>","name":"op"},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},` +
		`{"role":"tool","content":"","tool_call_id":"c1"}],"max_tokens":5}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWholeAnswer(t *testing.T) {
	t.Parallel()
	got, err := agentbus.Collect(backend(t, openai.Config{}, answers(200, "application/json", `{"model":"m","choices":[
		{"index":1,"message":{"content":"another"}},
		{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"reasoning":"hm",
		 "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":""}},{"id":"c2","function":{"name":"g","arguments":{"x": 1}}}]}}],
		"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5},"cost":0.0000125}}`)).Call(t.Context(), call()))
	if err != nil {
		t.Fatal(err)
	}
	want := agentbus.Reply{
		Text: "ab", Reasoning: "hm", Model: "m", Finish: "tool_calls",
		ToolCalls: []agentbus.ToolCall{{ID: "c1", Name: "f", Arguments: "{}"}, {ID: "c2", Name: "g", Arguments: `{"x":1}`}},
		Usage:     agentbus.Usage{InputTokens: 7, CachedTokens: 5, OutputTokens: 3, Cost: 13}, // rounded up (G27)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

const ended = `data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}` + "\n\n"

func TestStreamedToolCalls(t *testing.T) {
	t.Parallel()
	stream := `data: {"choices":[{"delta":{"reasoning_content":"hm","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g"}},{"index":0,"function":{"arguments":":1}"}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c","function":{"name":"h","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}

`
	got, err := agentbus.Collect(backend(t, openai.Config{}, answers(200, "text/event-stream", stream)).Call(t.Context(), call()))
	if err != nil {
		t.Fatal(err)
	}
	want := agentbus.Reply{Reasoning: "hm", Finish: "tool_calls", ToolCalls: []agentbus.ToolCall{
		{ID: "a", Name: "f", Arguments: `{"x":1}`}, {ID: "b", Name: "g", Arguments: "{}"}, {ID: "c", Name: "h", Arguments: "{}"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// G26: what a bus charged is preferred to what the agent says; what the turn
// was charged when it was executed, to what this replay was.
func TestCost(t *testing.T) {
	t.Parallel()
	const body = `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"cost":1e-05}}` + "\n\n" + ended
	for name, c := range map[string]struct {
		header []string
		body   string
		want   agentbus.Micros
		replay bool
	}{
		"the agent's word":  {body: body, want: 10},
		"the bus's header":  {header: []string{"X-Agentbus-Cost-Usd", "0.004"}, body: body, want: 4000},
		"no usage":          {header: []string{"X-Agentbus-Cost-Usd", "0.004"}, body: ended, want: 4000},
		"free for the bus":  {header: []string{"X-Agentbus-Cost-Usd", "0"}, body: body, want: 0},
		"replayed":          {header: []string{"X-Agentbus-Cost-Usd", "0", "X-Agentbus-Turn-Cost-Usd", "0.004", "X-Agentbus-Replay", "hit"}, body: body, want: 4000, replay: true},
		"trailer":           {header: []string{http.TrailerPrefix + "X-Agentbus-Cost-Usd", "0.005"}, body: body, want: 5000},
		"no amount is none": {header: []string{"X-Agentbus-Cost-Usd", "-1"}, body: body, want: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := agentbus.Collect(backend(t, openai.Config{}, answers(200, "text/event-stream", c.body, c.header...)).Call(t.Context(), call()))
			if err != nil || got.Usage.Cost != c.want || got.Replayed != c.replay {
				t.Errorf("got %v, replayed %v, %v, want %v", got.Usage.Cost, got.Replayed, err, c.want)
			}
		})
	}
}

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	const sse, js = "text/event-stream", "application/json"
	partial := `data: {"choices":[{"delta":{"content":"hi"}}]}` + "\n\n"
	for name, c := range map[string]struct {
		contentType, body string
		text, message     string
		code              agentbus.Code
		status            int
	}{
		"cut":                         {contentType: sse, body: partial, text: "hi", message: "the answer was cut"},
		"cut inside an event":         {contentType: sse, body: partial + `data: {"choi`, text: "hi", message: "the answer was cut"},
		"empty stream":                {contentType: sse, message: "the answer was cut"},
		"error frame":                 {contentType: sse, body: partial + `data: {"error":{"message":"over@load","code":"x"}}` + "\n\n", text: "hi", message: "the agent failed: over(at)load"},
		"error frame at the end":      {contentType: sse, body: ended + `data: {"error":"boom"}`, text: "hi", message: "the agent failed: boom"},
		"error frame with status":     {contentType: sse, body: `data: {"error":{"message":"slow down","code":429}}` + "\n\n", message: "the agent failed: slow down", status: 429},
		"error frame of a bus":        {contentType: sse, body: `data: {"error":{"message":"no","code":"chain_final","explain":{"rule":"C1"}}}` + "\n\n", message: "no", code: agentbus.CodeChainFinal},
		"error event":                 {contentType: sse, body: "event: error\ndata: {\"message\":\"boom\"}\n\n", message: "the agent failed: boom"},
		"not JSON":                    {contentType: sse, body: "data: <html>\n\n", message: "no JSON"},
		"error under 200":             {contentType: js, body: `{"error":{"message":"boom"}}`, message: "the agent failed: boom"},
		"no choices":                  {contentType: js, body: `{}`, message: "no choices"},
		"HTML":                        {contentType: "text/html", body: `<html>`, message: "no chat completion"},
		"too long":                    {contentType: js, body: `{"x":"` + strings.Repeat("x", 2000) + `"}`, message: "longer than 1000 bytes"},
		"too long a stream":           {contentType: sse, body: strings.Repeat(partial, 50), text: strings.Repeat("hi", 20), message: "longer than 1000 bytes"},
		"an image is not taken":       {contentType: js, body: `{"choices":[{"message":{"content":[{"type":"image_url"}]}}]}`, message: "image_url", code: agentbus.CodeUnsupportedContent},
		"error null is no error":      {contentType: js, body: `{"error":null}`, message: "no choices"},
		"tools of a cut stream":       {contentType: sse, body: `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}` + "\n\n", message: "the answer was cut"},
		"endless line":                {contentType: sse, body: "data: " + strings.Repeat("x", 5000), message: "longer than 1000 bytes"},
		"an answer that is no object": {contentType: js, body: `[]`, message: "no chat completion"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := agentbus.Collect(backend(t, openai.Config{MaxAnswer: 1000}, answers(200, c.contentType, c.body)).Call(t.Context(), call()))
			e := agentbus.AsError(err)
			if e == nil {
				t.Fatalf("no error, but %+v", got)
			}
			if c.code == "" {
				c.code = agentbus.CodeAgentUnavailable
			}
			if e.Code != c.code || !strings.Contains(e.Message, c.message) || e.Status != c.status || got.Text != c.text || got.ToolCalls != nil {
				t.Errorf("got %+v, %+v", got, e)
			}
		})
	}
}

// P11, P13, R11: what an agent refuses with is told by its code and status.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for status, length := range readReference(t).Statuses {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			var n int
			_, _ = fmt.Sscan(status, &n)
			_, err := agentbus.Collect(backend(t, openai.Config{}, answers(n, "text/plain", strings.Repeat("x", 5000))).Call(t.Context(), call()))
			e := agentbus.AsError(err)
			prefix := "the agent answered " + status + ": "
			if e.Code != agentbus.CodeAgentUnavailable || e.Status != n || !strings.HasPrefix(e.Message, prefix) || len(e.Message)-len(prefix) != length-1 {
				t.Errorf("got %.60v…, of %d bytes", e, len(e.Message)-len(prefix))
			}
		})
	}
	for _, c := range []struct {
		status int
		body   string
		want   agentbus.Error
	}{
		{429, `{"error":{"code":"bridge_depth_exceeded","message":"depth 4","explain":{"rule":"P10","limit":4}}}`, agentbus.Error{Code: agentbus.CodeDepthExceeded, Message: "depth 4", Status: 429}},
		{413, `{"error":{"code":"bridge_depth_exceeded","message":"depth 4"}}`, agentbus.Error{Code: agentbus.CodeDepthExceeded, Message: "depth 4", Status: 413}},
		{403, `{"error":{"code":"run_stopped","message":""}}`, agentbus.Error{Code: agentbus.CodeRunStopped, Message: "the agent answered 403", Status: 403}},
		{500, `{"error":{"code":"context_length","message":"too long"}}`, agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent answered 500: too long", Status: 500}},
		{503, `{"error":{"code":"quota","message":"none left","retryable":false}}`, agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent answered 503: none left", Status: 503, Final: true}},
		{503, `{"error":{"code":"overloaded","message":"later","retryable":true}}`, agentbus.Error{Code: agentbus.CodeOverloaded, Message: "later", Status: 503}},
		{500, `{"error":"just text"}`, agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent answered 500: just text", Status: 500}},
		{502, "<html>\n<b>Bad</b>\tGateway", agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent answered 502: <html> <b>Bad</b> Gateway", Status: 502}},
		{307, "", agentbus.Error{Code: agentbus.CodeAgentRedirected, Message: "the agent answered 307, a redirect, which is never followed", Status: 307}},
	} {
		_, err := agentbus.Collect(backend(t, openai.Config{}, answers(c.status, "application/json", c.body)).Call(t.Context(), call()))
		if diff := cmp.Diff(c.want, *agentbus.AsError(err), cmpopts.IgnoreFields(agentbus.Error{}, "Explain")); diff != "" {
			t.Errorf("%d %s (-want +got)\n%s", c.status, c.body, diff)
		}
	}
}

// What is mostly a wrong key, URL or model is told so.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{401: "key", 403: "key", 404: "URL", 500: ""} {
		_, err := agentbus.Collect(backend(t, openai.Config{}, answers(status, "text/plain", "no")).Call(t.Context(), call()))
		x := agentbus.AsError(err).Explain
		if want == "" && x != nil || want != "" && (x == nil || !strings.Contains(x.Next, want)) {
			t.Errorf("%d: %+v", status, x)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name, value string
			want        time.Duration
		}{
			{"Retry-After", "3", 3 * time.Second},
			{"Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat), time.Minute},
			{"Retry-After", time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), 0},
			{"Retry-After-Ms", "250", 250 * time.Millisecond},
			{"Retry-After", "soon", 0},
			{"Retry-After", "-1", 0},
			{"Retry-After", "99999999999999999999", 1e9 * time.Second}, // not none: it is not called again at once (R11)
			{"Retry-After", strings.Repeat("9", 400), 1e9 * time.Second},
			{"Retry-After-Ms", "1e300", 1e9 * time.Second},
		} {
			_, err := agentbus.Collect(backend(t, openai.Config{}, answers(503, "text/plain", "", c.name, c.value)).Call(t.Context(), call()))
			if got := agentbus.AsError(err).RetryAfter; got != c.want {
				t.Errorf("%s: %s gives %v, want %v", c.name, c.value, got, c.want)
			}
		}
	})
}

// P19: an agent that says credentials back does not get them into an error.
func TestErrorsHoldNoCredential(t *testing.T) {
	t.Parallel()
	b := backend(t, openai.Config{Key: agentbus.NewCredential("Bearer sk-agent-key")}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_ = r.Header.Write(w)
		_, _ = io.WriteString(w, strings.Repeat(" sk-user-key", 200))
	})
	c := call()
	c.Lineage.Auth = agentbus.NewCredential("Bearer sk-user-key")
	_, err := agentbus.Collect(b.Call(t.Context(), c))
	if s := fmt.Sprintf("%v %+v", err, agentbus.AsError(err)); strings.Contains(s, "-key") || !strings.Contains(s, "[redacted]") {
		t.Errorf("got %s", s)
	}
}

// P24: a credential does not leave in the clear, and the call is not made
// without it.
func TestPlaintext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url       string
		key, auth string
		allow     bool
		sent      bool
	}{
		{url: "http://agent.example/v1", auth: "Bearer u"},
		{url: "http://agent.example/v1", key: "Bearer k"},
		{url: "http://10.0.0.1/v1", key: "Bearer k"},
		{url: "http://localhost.example/v1", key: "Bearer k"},
		{url: "http://agent.example/v1", sent: true},
		{url: "http://agent.example/v1", auth: "Bearer u", allow: true, sent: true},
		{url: "https://agent.example/v1", auth: "Bearer u", sent: true},
		{url: "http://localhost:1/v1", auth: "Bearer u", sent: true},
		{url: "http://127.1.2.3:1/v1", auth: "Bearer u", sent: true},
		{url: "http://[::1]:1/v1", auth: "Bearer u", sent: true},
	} {
		sent := false
		b := backend(t, openai.Config{URL: c.url, Key: agentbus.NewCredential(c.key), AllowPlaintext: c.allow}, func(w http.ResponseWriter, r *http.Request) {
			sent = true
			answers(200, "application/json", `{"choices":[{"message":{"content":"ok"}}]}`)(w, r)
		})
		in := call()
		in.Lineage.Auth = agentbus.NewCredential(c.auth)
		_, err := agentbus.Collect(b.Call(t.Context(), in))
		if sent != c.sent || !c.sent && agentbus.CodeOf(err) != agentbus.CodeForbidden || c.sent && err != nil {
			t.Errorf("%+v: sent %v, %v", c, sent, err)
		}
	}
}

// roundTrip is a function as a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// P23: what nobody can send again cannot be sent elsewhere.
func TestRequestCannotBeSentAgain(t *testing.T) {
	t.Parallel()
	b, err := openai.New(openai.Config{URL: "http://localhost", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.GetBody != nil {
			t.Error("GetBody is set")
		}
		return nil, errors.New("refused")
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agentbus.Collect(b.Call(t.Context(), call())); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable {
		t.Errorf("got %v", err)
	}
}

// P23: a redirect is not followed over a real connection either.
func TestRedirectOverTheNetwork(t *testing.T) {
	t.Parallel()
	hits := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	b, err := openai.New(openai.Config{URL: s.URL, Transport: s.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	_, err = agentbus.Collect(b.Call(t.Context(), call()))
	if agentbus.CodeOf(err) != agentbus.CodeAgentRedirected || hits != 1 {
		t.Errorf("got %v after %d requests", err, hits)
	}
}

// Connections are used again, because a stream is read to its end.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	peers := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peers[r.RemoteAddr] = true
		answers(200, "text/event-stream", ended+"data: [DONE]\n\n", http.TrailerPrefix+"X-Agentbus-Cost-Usd", "0.01")(w, r)
	}))
	defer s.Close()
	b, err := openai.New(openai.Config{URL: s.URL, Transport: s.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := agentbus.Collect(b.Call(t.Context(), call()))
		if err != nil || got.Usage.Cost != 10_000 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if len(peers) != 1 {
		t.Errorf("%d connections for 3 calls", len(peers))
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(nil)
	s.Close()
	b, err := openai.New(openai.Config{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = agentbus.Collect(b.Call(t.Context(), call()))
	if e := agentbus.AsError(err); e.Code != agentbus.CodeAgentUnavailable || e.Status != 0 || e.Err == nil {
		t.Errorf("got %v", err)
	}
}

// R9, R10: the caller's leaving is not the agent's failure; time running out is
// deadline_exceeded. In a stream and before it.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	for _, begin := range []bool{false, true} {
		hang := func(w http.ResponseWriter, r *http.Request) {
			if begin {
				answers(200, "text/event-stream", `data: {"choices":[{"delta":{"content":"hi"}}]}`+"\n\n")(w, r)
			}
			<-r.Context().Done()
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := agentbus.Collect(backend(t, openai.Config{}, hang).Call(ctx, call()))
			if agentbus.CodeOf(err) != agentbus.CodeDeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("deadline, begun %v: got %v", begin, err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			left := errors.New("left")
			time.AfterFunc(time.Second, func() { cancel(left) })
			_, err := agentbus.Collect(backend(t, openai.Config{}, hang).Call(ctx, call()))
			if e, ok := errors.AsType[*agentbus.Error](err); ok || !errors.Is(err, context.Canceled) || !errors.Is(err, left) {
				t.Errorf("cancel, begun %v: got %v, %v", begin, err, e)
			}
		})
	}
}

// A reader that stops reading stops the agent.
func TestReaderStops(t *testing.T) {
	t.Parallel()
	stopped := false
	b := backend(t, openai.Config{}, func(w http.ResponseWriter, r *http.Request) {
		answers(200, "text/event-stream", ended)(w, r)
		<-r.Context().Done()
		stopped = true
	})
	for _, err := range b.Call(t.Context(), call()) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if !stopped {
		t.Error("the agent was left running")
	}
}

// A server that says [DONE] and does not hang up costs a moment, not for ever.
func TestLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := agentbus.Collect(backend(t, openai.Config{}, func(w http.ResponseWriter, r *http.Request) {
			answers(200, "text/event-stream", ended+"data: [DONE]\n\n")(w, r)
			<-r.Context().Done()
		}).Call(t.Context(), call()))
		if took := time.Since(began); err != nil || got.Text != "hi" || took > time.Second {
			t.Errorf("got %+v, %v after %v", got, err, took)
		}
	})
}

// R8: what a bus charged is counted, however slow the bus is to end its answer.
func TestLingerForACost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := agentbus.Collect(backend(t, openai.Config{}, func(w http.ResponseWriter, r *http.Request) {
			answers(200, "text/event-stream", ended+"data: [DONE]\n\n", "X-Agentbus-Attempts", "1", http.TrailerPrefix+"X-Agentbus-Cost-Usd", "0.005")(w, r)
			<-time.After(5 * time.Second)
		}).Call(t.Context(), call()))
		if err != nil || got.Usage.Cost != 5000 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := openai.New(openai.Config{
		URL: "ftp://x", Header: http.Header{"authorization": {"x"}, "X_Tangle_Runid": {"y"}}, MaxAnswer: -1,
	})
	for _, want := range []string{"url: ", "header: authorization", "header: x_tangle_runid", "max_answer: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	for _, url := range []string{"", "http://", "http://u:p@host", "http://host?x=1", "http://host#x", "http://ho st"} {
		if _, err := openai.New(openai.Config{URL: url}); err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// FuzzAnswer: no answer makes the decoder panic, and none is read beyond its
// bound.
func FuzzAnswer(f *testing.F) {
	f.Add(ended+"data: [DONE]\n\n", true)
	f.Add(`data: {"choices":[{"delta":{"tool_calls":[{"index":-1,"id":"a","function":{"arguments":[1]}}]},"finish_reason":"x"}],"usage":{"cost":1e300}}`, true)
	f.Add(`{"choices":[{"message":{"content":[{"type":"text","text":"a"}]}}],"usage":{"cost":"0.1"}}`, false)
	f.Add(`data: {"error":{"code":{},"explain":[]}}`, true)
	f.Fuzz(func(t *testing.T, body string, stream bool) {
		contentType := "application/json"
		if stream {
			contentType = "text/event-stream"
		}
		const limit = 1 << 10
		got, err := agentbus.Collect(backend(t, openai.Config{MaxAnswer: limit}, answers(200, contentType, body)).Call(t.Context(), call()))
		if len(got.Text) > 3*limit { // an invalid byte becomes three
			t.Errorf("%d bytes of text", len(got.Text))
		}
		if e, ok := errors.AsType[*agentbus.Error](err); err != nil && (!ok || !e.Code.Known()) {
			t.Errorf("an error without a code: %v", err)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	stream := strings.Repeat(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}`+"\n\n", 100) + ended
	agent, err := openai.New(openai.Config{URL: "http://localhost", Transport: httpx.Memory(answers(200, "text/event-stream", stream))})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := agentbus.Collect(agent.Call(b.Context(), call())); err != nil {
			b.Fatal(err)
		}
	}
}
