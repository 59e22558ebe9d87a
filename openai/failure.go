package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/sse"
)

const (
	maxFailure = 64 << 10 // of an error answer, the bytes that are read
	maxQuoted  = 2048     // of it, the bytes that are said back
	maxChoices = 32       // of what an agent asks, that are passed on
)

// broken returns the error for a connection that failed while ctx was in force.
func (b *Backend) broken(ctx context.Context, message string, err error) error {
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return fmt.Errorf("call %s: %w: %w", b.url.Host, ctx.Err(), cause)
		}
		return fmt.Errorf("call %s: %w", b.url.Host, ctx.Err())
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return &agentbus.Error{Code: agentbus.CodeDeadlineExceeded, Message: "the agent did not answer in time", Err: err}
	case errors.Is(err, errTooLong), errors.Is(err, sse.ErrTooLarge):
		message = "the agent's answer is longer than " + strconv.FormatInt(b.config.MaxAnswer, 10) + " bytes"
	}
	return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: message, Err: err}
}

// refused returns the error for an answer that is none: any status but 2xx.
func (b *Backend) refused(ctx context.Context, c *agentbus.Call, resp *http.Response) error {
	status := strconv.Itoa(resp.StatusCode)
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return &agentbus.Error{
			Code: agentbus.CodeAgentRedirected, Status: resp.StatusCode,
			Message: "the agent answered " + status + ", a redirect, which is never followed",
			Explain: &agentbus.Explain{Rule: "P23", Observed: resp.StatusCode, Next: "configure the agent's final address"},
		}
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	if err != nil && ctx.Err() != nil {
		return b.broken(ctx, "", err)
	}
	e := &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	var envelope struct {
		Error json.RawMessage `json:"error"`
	}
	words := said{Message: string(raw)}
	if json.Unmarshal(raw, &envelope) == nil && present(envelope.Error) {
		words = parseError(envelope.Error)
	}
	e.Message = "the agent answered " + status
	if b.adopt(e, c, words); e.Code == agentbus.CodeAgentUnavailable && e.Explain == nil {
		e.Explain = advice(resp.StatusCode)
	}
	return e
}

// advice is what whoever configured an agent may have got wrong that answers so;
// nil: it may be anything.
func advice(status int) *agentbus.Explain {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &agentbus.Explain{Observed: status, Next: "see to the key that the agent is sent"}
	case http.StatusNotFound:
		return &agentbus.Explain{Observed: status, Next: "see to the model that the agent is asked for, and to its URL, which ends where its API begins, such as http://host/v1"}
	}
	return nil
}

// failed returns the error for an error object where an answer should be.
func (b *Backend) failed(c *agentbus.Call, raw json.RawMessage) error {
	e := &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the agent failed"}
	words := parseError(raw)
	if n, err := strconv.Atoi(words.Code); err == nil && n >= 400 && n <= 599 {
		e.Status = n
	}
	b.adopt(e, c, words)
	return e
}

// adopt lets e say what the agent said: its own words under a code of the bus
// (P11), else what it said behind e's message.
func (b *Backend) adopt(e *agentbus.Error, c *agentbus.Call, s said) {
	text := b.quote(c, s.Message)
	e.Final = s.Final
	code := agentbus.Code(s.Code)
	switch {
	case code.Known():
		e.Code, e.Message, e.Explain = code, cmp.Or(text, e.Message), s.Explain
		if code == agentbus.CodeInputRequired || code == agentbus.CodePaymentRequired {
			e.Ask = b.asked(c, code, text, s.Ask)
		}
	case text != "":
		e.Message += ": " + text
	}
}

// said is what an agent's error object says.
type said struct {
	Message string
	Code    string
	Explain *agentbus.Explain
	Ask     *agentbus.Ask
	Final   bool // "retryable": false
}

// parseError reads an error object, or the string that some servers send in
// its place.
func parseError(raw json.RawMessage) said {
	var object struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
		Explain json.RawMessage `json:"explain"`
		Ask     json.RawMessage `json:"ask"`

		Retryable json.RawMessage `json:"retryable"`
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return said{Message: text}
	}
	if json.Unmarshal(raw, &object) != nil {
		return said{Message: string(raw)}
	}
	out := said{Message: object.Message, Code: strings.Trim(string(object.Code), `"`), Final: string(object.Retryable) == "false"}
	var explain agentbus.Explain
	if present(object.Explain) && json.Unmarshal(object.Explain, &explain) == nil {
		out.Explain = &explain
	}
	var ask agentbus.Ask
	if present(object.Ask) && json.Unmarshal(object.Ask, &ask) == nil {
		out.Ask = &ask
	}
	return out
}

// asked returns what an agent wants to be told that answered with a code which
// says that it waits (A38): what it says of it, or that alone. An interrupt that
// it names is one of its own bus, where it is resolved; a resolution of ours
// calls the agent again, and takes nothing to it.
func (b *Backend) asked(c *agentbus.Call, code agentbus.Code, text string, said *agentbus.Ask) *agentbus.Ask {
	ask := agentbus.Ask{Kind: agentbus.AskClarification}
	if code == agentbus.CodePaymentRequired {
		ask.Kind = agentbus.AskPolicy
	}
	if said == nil {
		ask.Title = text
		return &ask
	}
	ask = agentbus.Ask{
		Kind: cmp.Or(said.Kind, ask.Kind), Title: cmp.Or(b.quote(c, said.Title), text), Prompt: b.quote(c, said.Prompt), Timeout: max(0, said.Timeout),
		Policy: json.RawMessage(b.hide(c, string(said.Policy))), Remote: said.Remote,
	}
	for _, choice := range said.Choices[:min(len(said.Choices), maxChoices)] {
		ask.Choices = append(ask.Choices, b.quote(c, choice))
	}
	if len(said.Interrupts) > 0 {
		ask.Remote = agentbus.InterruptID(b.quote(c, string(said.Interrupts[0])))
	}
	return &ask
}

// present reports whether a JSON value is there and not null.
func present(raw json.RawMessage) bool {
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null"))
}

// quote makes the agent's words fit to be said: one line, at most 2048 bytes,
// without the credentials of the call (P19), without a mention.
func (b *Backend) quote(c *agentbus.Call, s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(b.hide(c, s), "?")), " ")
	s = strings.ReplaceAll(s, "@", "(at)")
	if len(s) > maxQuoted {
		s = s[:maxQuoted]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return s
}

// hide takes the credentials of the call out of what an agent said (P19).
func (b *Backend) hide(c *agentbus.Call, s string) string {
	for _, secret := range [...]agentbus.Credential{c.Lineage.Auth, b.config.Key} {
		token, _ := secret.Token()
		for _, part := range [...]string{secret.Reveal(), token.Reveal()} { //nolint:forbidigo // to take it out (P19)
			if part != "" {
				s = strings.ReplaceAll(s, part, secret.String())
			}
		}
	}
	return s
}

// retryAfter returns how long an answer asks to wait, 0 when it does not say.
func retryAfter(h http.Header) time.Duration {
	if d, ok := waitOf(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	s := h.Get("Retry-After")
	if d, ok := waitOf(s, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// waitOf reads how many units an answer asks to wait: not more than there are in years.
func waitOf(s string, unit time.Duration) (d time.Duration, ok bool) {
	n, err := strconv.ParseFloat(s, 64) // more than it can hold is infinite
	if err != nil && !errors.Is(err, strconv.ErrRange) || !(n >= 0) {
		return 0, false
	}
	return time.Duration(min(n*float64(unit), float64(longestWait))), true
}

// longestWait is longer than anybody waits.
const longestWait = 1e9 * time.Second
