package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// cost is what a call of t that used u is charged (G26).
func (t *Target) cost(u agentbus.Usage) agentbus.Micros {
	if t.UsageCost {
		return max(u.Cost, 0)
	}
	return t.Price.Cost(u)
}

// turnCost is what a settled call came to with the calls that were made inside
// it, where the bus knows: an agent of this process reports what its own calls
// were charged.
func (t *Target) turnCost(c *agentbus.CallRecord) agentbus.Micros {
	if !t.Local || t.UsageCost {
		return c.Cost
	}
	return c.Cost + max(c.Usage.Cost, 0)
}

// tellCost writes what the call was charged into a header or, with the prefix
// of one, a trailer; and what its turn came to, when that is more.
func (x *exchange) tellCost(h http.Header, prefix string) {
	h[prefix+"X-Agentbus-Cost-Usd"] = []string{x.record.Cost.USD()}
	if turn := x.target.turnCost(&x.record); turn != x.record.Cost {
		h[prefix+"X-Agentbus-Turn-Cost-Usd"] = []string{turn.USD()}
	}
}

// usage returns the usage that a whole answer told, or an estimate of it. An
// error answer that tells none used nothing.
func (a *answer) usage(status int, body []byte) agentbus.Usage {
	if e := a.exchange.envelope; e != nil {
		return a.exchange.usageOfFrame(usageIn(&e.told), e.told.Err != nil, func() (said a2a.Said) {
			if e.read || rawjson.Valid(body) {
				said.HearFrame(&e.told, body, e.binding)
			}
			return said
		})
	}
	return a.exchange.used(parseUsage(body), func() agentbus.Usage {
		switch {
		case status >= http.StatusBadRequest:
			return agentbus.Usage{}
		case a.exchange.bridged():
			return a.exchange.bridgedUsage(chatBytes(body, "message"))
		}
		return estimate(a.exchange, int64(len(body)/bytesPerToken))
	})
}

// used is what the call used: what was told, with an estimate of the tokens when they
// were not, and are what is charged (G26).
func (x *exchange) used(told reported, estimate func() agentbus.Usage) agentbus.Usage {
	x.costTold = told.cost
	if told.tokens || told.cost && x.target.UsageCost {
		return told.Usage
	}
	u := estimate()
	u.Cost = told.Cost
	return u
}

// unpriced tells the operator of a call that is charged what its agent says it cost, and
// was told nothing: each by a note, and the first of an agent in the log.
func (g *Gateway) unpriced(ctx context.Context, x *exchange) {
	x.note("cost_unreported")
	if _, known := g.unreported.LoadOrStore(x.target.Name, true); known {
		return
	}
	g.log.LogAttrs(ctx, slog.LevelWarn, "an agent with usage_cost did not say what the call cost, so nothing is charged; calls have the note cost_unreported", x.where())
}

// bridgedUsage is the estimate for an agent of A2A that is called as a model, and tells
// no usage: the same for an answer that comes whole and one that is streamed (G26).
func (x *exchange) bridgedUsage(said int) agentbus.Usage {
	sent := len(gjson.GetBytes(x.body, "messages").Raw)
	return agentbus.Usage{InputTokens: int64(sent / bytesPerToken), OutputTokens: int64(said / bytesPerToken), Estimated: true}
}

// chatBytes returns how many bytes the choices of a chat completion say, under message,
// or those of an event of its stream, under delta.
func chatBytes(body []byte, under string) (n int) {
	gjson.GetBytes(body, "choices").ForEach(func(_, choice gjson.Result) bool {
		said := choice.Get(under)
		n += len(said.Get("content").Str)
		said.Get("tool_calls").ForEach(func(_, call gjson.Result) bool {
			n += len(call.Get("function.name").Str) + len(call.Get("function.arguments").Str)
			return true
		})
		return true
	})
	return n
}

// speaks reports whether a chat completion, or an event of its stream, says anything
// but white space, or calls a tool.
func speaks(body []byte) (yes bool) {
	gjson.GetBytes(body, "choices").ForEach(func(_, choice gjson.Result) bool {
		for _, said := range [...]gjson.Result{choice.Get("delta"), choice.Get("message")} {
			content := said.Get("content")
			yes = yes || content.IsArray() || strings.TrimSpace(content.Str) != "" || len(said.Get("tool_calls").Array()) > 0
		}
		return !yes
	})
	return yes
}

// bytesPerToken is the usual rule of thumb for English text.
const bytesPerToken = 4

func estimate(x *exchange, output int64) agentbus.Usage {
	return agentbus.Usage{InputTokens: int64(len(x.body) / bytesPerToken), OutputTokens: output, Estimated: true}
}

// A reported is what an answer tells of its usage.
type reported struct {
	agentbus.Usage

	tokens, cost bool // whether it tells any that can be one
}

func (r *reported) told() bool { return r.tokens || r.cost }

// parseUsage reads the usage object of an answer, or of the last event of a
// stream, in the names of chat completions and of responses.
func parseUsage(body []byte) (u reported) {
	if !bytes.Contains(body, usageMark) {
		return u
	}
	v := gjson.GetBytes(body, "usage")
	if !v.IsObject() {
		v = gjson.GetBytes(body, "response.usage") // of response.completed
	}
	if !v.IsObject() {
		return u
	}
	absurd := false // a count that can be none: who tells it is not believed the other one either
	read := func(to *int64, n gjson.Result) (ok bool) {
		if ok = n.Type == gjson.Number && n.Num >= 0 && n.Num <= math.MaxInt32; ok {
			*to, u.tokens = int64(n.Num), true
		}
		return ok || n.Type == gjson.Null
	}
	v.ForEach(func(key, n gjson.Result) bool {
		switch key.Str {
		case "prompt_tokens", "input_tokens":
			absurd = !read(&u.InputTokens, n) || absurd
		case "completion_tokens", "output_tokens":
			absurd = !read(&u.OutputTokens, n) || absurd
		case "prompt_tokens_details", "input_tokens_details":
			read(&u.CachedTokens, n.Get("cached_tokens"))
		case "cost":
			u.Cost, u.cost = microsOf(n), n.Type == gjson.Number && n.Num >= 0
		}
		return true
	})
	if absurd {
		u.Usage, u.tokens = agentbus.Usage{Cost: u.Cost}, false
	}
	return u
}

// microsOf reads an amount of dollars; more than six places round up.
func microsOf(n gjson.Result) agentbus.Micros {
	if m, err := agentbus.ParseUSD(n.Raw); err == nil {
		return m
	}
	if n.Type != gjson.Number || n.Num <= 0 || n.Num > 1e6 {
		return 0
	}
	return agentbus.Micros(math.Ceil(n.Num * 1e6)) // written with an exponent
}

// isErrorBody reports whether an answer under status 200 is an error all the
// same: {"error":…} and no choices or output.
func isErrorBody(body []byte) bool {
	if !bytes.Contains(body, errorMark) {
		return false
	}
	e := gjson.GetManyBytes(body, "error", "choices", "output")
	return (e[0].IsObject() || e[0].Type == gjson.String) && !e[1].Exists() && !e[2].Exists()
}
