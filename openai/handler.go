package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// DefaultMaxBody is the largest request body that is read.
const DefaultMaxBody = 4 << 20

// A HandlerConfig says what a Handler serves.
type HandlerConfig struct {
	// Backend answers. It is required.
	Backend agentbus.Backend
	// Models are listed, and nothing else is served; none lists Name and serves
	// any. The model of a request is the Agent of its call.
	Models []string
	// Name is listed where there are no Models: clients that let people choose among
	// models need one. Requests may name any. "" lists none.
	Name string
	// AnswersJSON says that Backend answers in the JSON that its callers ask for, by
	// itself: a response_format is let through then, and Backend is not told of it.
	AnswersJSON bool
	// MaxBody is the largest request body in bytes; 0 means DefaultMaxBody.
	MaxBody int64
	// Log gets the causes of failed calls; nil keeps none.
	Log *slog.Logger
}

// Handler serves c.Backend as an OpenAI-compatible API: POST
// /v1/chat/completions, streaming or not, and GET /v1/models, both also without
// /v1. Of other paths it says, in the same shape, that they are not here.
//
// Lineage comes from the headers of the protocol, and a malformed one is
// refused. The handler authenticates nobody and checks no depth: that is for
// the gateway before it and the runtime behind it. Unknown fields of a request
// are ignored; content that is no text is refused with CodeUnsupportedContent, and so
// is what the answer must be and a backend cannot be held to: a response_format, a
// tool_choice or a function_call that takes no answer in text, and audio. Tools that
// are only offered, stop, logprobs and web_search_options are not told to the
// backend, and [HeaderIgnored] of the answer names them.
// A stream is passed on as it comes; the usage that the backend told stands in its
// last event of the answer, or in one of its own for who asks for that. What cannot be unsaid, an error or a void
// chunk after the first byte, ends it with an error frame and without [DONE].
func Handler(c HandlerConfig) http.Handler {
	h := &handler{config: c}
	if h.config.MaxBody <= 0 {
		h.config.MaxBody = DefaultMaxBody
	}
	if h.config.Log == nil {
		h.config.Log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	for _, prefix := range [...]string{"", "/v1"} {
		mux.HandleFunc("POST "+prefix+"/chat/completions", h.chat)
		mux.HandleFunc("GET "+prefix+"/models", h.models)
		mux.HandleFunc(prefix+"/responses", noResponses)
	}
	mux.HandleFunc("/", notHere)
	return mux
}

// noResponses says that the API of responses is only passed on, to agents that
// have it (G1).
func noResponses(w http.ResponseWriter, _ *http.Request) {
	httpx.WriteError(w, agentbus.Lineage{}, &agentbus.Error{
		Code: agentbus.CodeUnsupportedContent, Message: "this agent does not speak the API of responses; send the same question as a chat completion",
		Explain: &agentbus.Explain{Rule: "G1", Supported: []string{"/v1/chat/completions"}, Next: "send the same question as a chat completion"},
	})
}

func notHere(w http.ResponseWriter, r *http.Request) {
	httpx.WriteError(w, agentbus.Lineage{}, &agentbus.Error{
		Code: agentbus.CodeAgentNotFound, Message: "this agent has no such path, or not with " + clip(r.Method) + "; call POST /v1/chat/completions, or GET /v1/models",
		Explain: &agentbus.Explain{Rule: "G1", Next: "call POST /v1/chat/completions, or GET /v1/models"},
	})
}

type handler struct{ config HandlerConfig }

// chat answers a chat completion request.
func (h *handler) chat(w http.ResponseWriter, r *http.Request) {
	l, err := agentbus.ParseLineage(r.Header)
	if err != nil {
		httpx.WriteError(w, l, err)
		return
	}
	in, err := h.decode(w, r)
	if err != nil {
		httpx.WriteError(w, l, err)
		return
	}
	call := &agentbus.Call{Lineage: l, Agent: in.Model, Messages: in.messages, MaxTokens: in.maxTokens()}
	answer := h.config.Backend.Call(r.Context(), call)
	if ignored := in.ignored(); ignored != "" {
		w.Header().Set(HeaderIgnored, ignored)
	}
	out := newReply(w, in)
	if in.Stream {
		err = out.stream(r.Context(), answer, l)
	} else {
		err = out.whole(answer)
	}
	if err == nil {
		return
	}
	h.config.Log.WarnContext(r.Context(), "call failed", slog.String("run", string(l.Run)), slog.String("turn", string(l.Turn)),
		slog.String("agent", in.Model), slog.Any("error", err))
	if !out.began {
		httpx.WriteError(w, l, err)
	}
}

// models lists what is served.
func (h *handler) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	ids := h.config.Models
	if len(ids) == 0 && h.config.Name != "" {
		ids = []string{h.config.Name}
	}
	list := make([]model, len(ids))
	for i, id := range ids {
		list[i] = model{ID: id, Object: "model", OwnedBy: "agentbus"}
	}
	raw, err := marshal(struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", list})
	if err != nil {
		httpx.WriteError(w, agentbus.Lineage{}, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
}

// inbound is a request as it is read.
type inbound struct {
	Model    string `json:"model"`
	Messages []struct {
		Role       string     `json:"role"`
		Content    content    `json:"content"`
		Name       string     `json:"name"`
		ToolCalls  []toolCall `json:"tool_calls"`
		ToolCallID string     `json:"tool_call_id"`
	} `json:"messages"`
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	N                   int `json:"n"`
	wishes

	messages []agentbus.Message
}

func (in *inbound) maxTokens() int { return cmp.Or(in.MaxCompletionTokens, in.MaxTokens) }

// decode reads a request body.
func (h *handler) decode(w http.ResponseWriter, r *http.Request) (*inbound, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &agentbus.Error{
			Code: agentbus.CodeRequestTooLarge, Message: "the request body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes",
			Explain: &agentbus.Explain{Limit: tooLarge.Limit, Next: "send less, or ask the operator to raise the limit"},
		}
	}
	if err != nil {
		return nil, invalid("the request body could not be read to its end", err)
	}
	in, err := parse(raw, h.config.AnswersJSON)
	if err != nil {
		return nil, err
	}
	if len(h.config.Models) > 0 && !slices.Contains(h.config.Models, in.Model) {
		return nil, &agentbus.Error{
			Code: agentbus.CodeAgentNotFound, Message: "there is no model " + strconv.Quote(clip(in.Model)) + " here",
			Explain: &agentbus.Explain{Observed: clip(in.Model), Supported: h.config.Models, Next: "ask for one of the supported models"},
		}
	}
	return in, nil
}

func invalid(message string, cause error) error {
	return &agentbus.Error{Code: agentbus.CodeInvalidRequest, Message: message, Err: cause}
}

// unfit says what of a request is not as it should be, in the names of the API.
func unfit(err error) error {
	message := "the request body is no chat completion request: " + clip(err.Error())
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		message = clip(wrong.Field) + ": " + clip(wrong.Value) + " is no value for it"
		if wrong.Field == "" {
			message = "the request body must be an object, not " + clip(wrong.Value)
		}
	}
	return invalid(message, err)
}

// parse reads a request from its JSON. answersJSON is that of the backend.
func parse(raw []byte, answersJSON bool) (*inbound, error) {
	var in inbound
	if err := json.Unmarshal(raw, &in); err != nil {
		if own, ok := errors.AsType[*agentbus.Error](err); ok {
			return nil, own
		}
		return nil, unfit(err)
	}
	switch {
	case len(in.Messages) == 0:
		return nil, invalid("messages: at least one is required", nil)
	case in.N > 1 || in.N < 0:
		return nil, invalid("n: only one answer is given", nil)
	case in.MaxTokens < 0 || in.MaxCompletionTokens < 0:
		return nil, invalid("max_tokens: must not be negative", nil)
	}
	if err := in.demanded(answersJSON); err != nil {
		return nil, err
	}
	in.messages = make([]agentbus.Message, len(in.Messages))
	for i, m := range in.Messages {
		out := &in.messages[i]
		*out = agentbus.Message{Role: agentbus.Role(m.Role), Content: string(m.Content), Name: m.Name, ToolCallID: m.ToolCallID}
		switch out.Role {
		case agentbus.RoleSystem, agentbus.RoleUser, agentbus.RoleAssistant, agentbus.RoleTool:
		case "developer":
			out.Role = agentbus.RoleSystem
		default:
			return nil, invalid("messages["+strconv.Itoa(i)+"].role: "+strconv.Quote(clip(m.Role))+" is not system, user, assistant or tool", nil)
		}
		for _, t := range m.ToolCalls {
			out.ToolCalls = append(out.ToolCalls, agentbus.ToolCall{ID: t.ID, Name: t.Function.Name, Arguments: string(t.Function.Arguments)})
		}
	}
	return &in, nil
}
