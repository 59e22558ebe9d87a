package a2a

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
	"github.com/agentbus/agentbus/internal/sse"
)

const (
	maxRefusal = 2048     // bytes of a refusal that are read (A35)
	maxFrame   = 10 << 20 // bytes of one event (A11)
)

// A wire stands between the SDK's client and the network, and keeps the SDK from
// what it does not expect (A33 to A36): it writes our headers, each once, reads
// refusals and errors before the SDK loses them, and gives it frames that it
// knows, and nothing else.
type wire struct{ backend *Backend }

// RoundTrip sends r. It fails with what the agent told, as an *Error, when the
// answer is none.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.GetBody = nil // nobody sends it twice
	for name, values := range w.backend.config.Header {
		out.Header[http.CanonicalHeaderKey(name)] = values
	}
	if len(w.backend.config.Extensions) > 0 {
		out.Header["A2a-Extensions"] = []string{strings.Join(w.backend.config.Extensions, ", ")} // one field (A9)
	}
	if !w.backend.config.Key.IsZero() {
		out.Header.Set("Authorization", w.backend.config.Key.Reveal()) //nolint:forbidigo // the agent's own key goes to the agent (P22)
	}
	maps.Copy(out.Header, headerOf(r.Context()))
	t, _ := r.Context().Value(talkKey{}).(*talk)
	if t != nil {
		l := t.call.Lineage
		l.Hop, _ = r.Context().Value(hopSentKey{}).(string)
		l.SetHeaders(out.Header)
	}
	resp, err := w.backend.config.Transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	body, err := w.read(r, resp, t)
	if err != nil {
		_ = resp.Body.Close() // the answer is told by err
		return nil, err
	}
	resp.Body = body
	return resp, nil
}

type headerKey struct{}

// WithHeader returns ctx for one call of a Backend, whose requests have the
// headers of h beside, and in place of, those of its configuration: what the
// gateway writes for the agent, in canonical form.
func WithHeader(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headerKey{}, h)
}

type evidenceKey struct{}

// WithEvidence returns ctx for one call of a Backend, whose messages show what
// prove returns for their ids: evidence of identity, a list in JSON; nil is none
// (C25). What it fails with fails the call, before anything is sent.
func WithEvidence(ctx context.Context, prove func(ctx context.Context, messageID string) ([]byte, error)) context.Context {
	return context.WithValue(ctx, evidenceKey{}, prove)
}

// evidenceOf returns the evidence that a message shows; nil: none.
func evidenceOf(ctx context.Context, messageID string) ([]byte, error) {
	if prove, ok := ctx.Value(evidenceKey{}).(func(context.Context, string) ([]byte, error)); ok {
		return prove(ctx, messageID)
	}
	return nil, nil
}

type hopKey struct{}

// WithHop returns ctx for one call of a Backend, whose messages carry the signed hop
// that sign returns for their ids, in place of that of the call's lineage; "" is none
// (C16). It is asked for the hop of a call, too, that follows the task of the same
// message, and sends none. What it fails with fails the call, before anything is sent.
func WithHop(ctx context.Context, sign func(ctx context.Context, messageID string) (string, error)) context.Context {
	return context.WithValue(ctx, hopKey{}, sign)
}

// hopFor returns the hop that a message carries; "": none.
func (t *talk) hopFor(ctx context.Context) (string, error) {
	if sign, ok := ctx.Value(hopKey{}).(func(context.Context, string) (string, error)); ok {
		return sign(ctx, t.message)
	}
	return t.call.Lineage.Hop, nil
}

// hopSentKey is where the context of a message has the hop that goes with it: it counts
// once, and what asks for the task later must not bring it again (X11).
type hopSentKey struct{}

func headerOf(ctx context.Context) http.Header {
	h, _ := ctx.Value(headerKey{}).(http.Header)
	return h
}

// read returns the body that the SDK is given.
func (w *wire) read(r *http.Request, resp *http.Response, t *talk) (io.ReadCloser, error) {
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp)
	}
	limited := &bounded{src: resp.Body, left: w.backend.config.MaxAnswer}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	streams := r.Header.Get("Accept") == "text/event-stream"
	switch {
	case streams && kind == "text/event-stream":
		if t != nil {
			t.streamed = true
		}
		return &frames{Closer: resp.Body, src: sse.NewReader(limited, maxFrame), talk: t}, nil
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
	default:
		return nil, unusable("the agent answered with "+plain(strconv.Quote(kind))+" in place of JSON or a stream", nil)
	}
	raw, err := io.ReadAll(limited)
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	if e, failed := ReadError(raw); failed {
		return nil, e
	}
	if raw = timely(raw); t != nil {
		t.seen(raw)
	}
	if streams { // the one answer, in place of a stream (A33)
		if raw, err = frame(raw); err != nil {
			return nil, err
		}
	}
	_ = resp.Body.Close() // read to its end
	return io.NopCloser(bytes.NewReader(raw)), nil
}

// refusal returns what an agent said with a status that is no answer.
func refusal(resp *http.Response) error {
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return &agentbus.Error{
			Code: agentbus.CodeAgentRedirected, Status: resp.StatusCode,
			Message: "the agent answered " + strconv.Itoa(resp.StatusCode) + ", a redirect, which is never followed",
			Explain: &agentbus.Explain{Rule: "P23", Observed: resp.StatusCode, Next: "configure the agent's final address"},
		}
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what there is of it
	out := &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent answered " + strconv.Itoa(resp.StatusCode)}
	if e, told := ReadError(raw); told {
		if e.Domain == DomainA2A {
			return e
		}
		out = e.Bus()
	} else if text := plain(strings.TrimSpace(string(raw))); text != "" {
		out.Message += ": " + text
	}
	out.Status, out.RetryAfter = resp.StatusCode, retryAfter(resp.Header)
	return out
}

// retryAfter returns how long an answer asks to wait, 0 when it does not say.
func retryAfter(h http.Header) time.Duration {
	s := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(s, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the most
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// frames is a stream as the SDK is given it: what it does not know, and what is of
// another task than the stream began with, is left out (A34), an error ends it.
type frames struct {
	io.Closer

	src  *sse.Reader
	talk *talk
	task string // that the stream tells of
	rest []byte
}

// Read fails with the error that a frame tells, and with io.ErrUnexpectedEOF
// when the stream ends inside of one. The blank line behind the last one may be missing.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		event, err := f.src.Next()
		switch {
		case errors.Is(err, sse.ErrCut) && !json.Valid(event.Data):
			return 0, io.ErrUnexpectedEOF
		case err != nil && !errors.Is(err, sse.ErrCut):
			return 0, err
		}
		if e, failed := ReadError(event.Data); failed {
			return 0, e
		}
		if !known(event.Data) || f.foreign(event.Data) {
			continue
		}
		if f.talk != nil {
			f.talk.seen(event.Data)
		}
		if f.rest, err = frame(timely(event.Data)); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// foreign reports whether an event tells of another task than the stream does.
func (f *frames) foreign(data []byte) bool {
	told, _ := ReadFrame(data, JSONRPC)
	if len(told.Tasks) == 0 {
		told, _ = ReadFrame(data, REST)
	}
	if len(told.Tasks) == 0 {
		return false
	}
	f.task = cmp.Or(f.task, told.Tasks[0].ID)
	return told.Tasks[0].ID != f.task
}

// frame writes JSON as an event of one line.
func frame(data []byte) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := json.Compact(&b, data); err != nil {
		return nil, unusable("the agent's answer is no JSON", err)
	}
	b.WriteString("\n\n")
	return b.Bytes(), nil
}

// statusTimes is where an answer may tell since when a task stands as it does.
var statusTimes = [...]string{"status.timestamp", "task.status.timestamp", "statusUpdate.status.timestamp"}

// timely returns an answer without the times of a status that are none, which nobody
// here reads: servers in Python tell a local one without its zone, and the SDK would
// give up the whole answer for it (A34).
func timely(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`"timestamp"`)) || !rawjson.Valid(raw) {
		return raw
	}
	for _, below := range [...]string{"", "result."} {
		for _, at := range statusTimes {
			told := gjson.GetBytes(raw, below+at)
			if !told.Exists() || json.Unmarshal([]byte(told.Raw), new(time.Time)) == nil {
				continue
			}
			if without, err := Set(raw, nil, strings.Split(below+at, ".")...); err == nil {
				raw = without
			}
		}
	}
	return raw
}

// known reports whether a frame holds one of the members that a stream may have.
func known(data []byte) bool {
	var f map[string]json.RawMessage
	if json.Unmarshal(data, &f) != nil {
		return true // the SDK says what is wrong
	}
	if result, rpc := f["result"]; rpc {
		f = nil
		_ = json.Unmarshal(result, &f) // what is no object has no members
	}
	for _, member := range [...]string{"task", "message", "statusUpdate", "artifactUpdate"} {
		if _, ok := f[member]; ok {
			return true
		}
	}
	return false
}

var errAnswerTooLong = errors.New("answer is too long")

// bounded reads an answer up to a limit.
type bounded struct {
	src  io.Reader
	left int64
}

// Read fails beyond the limit.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if n, err := io.ReadFull(b.src, make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, unusable("the agent's answer is too long", errAnswerTooLong)
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
