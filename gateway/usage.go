package gateway

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
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
		return a.exchange.usageOfFrame(&e.told, func() (said a2a.Said) {
			if json.Valid(body) {
				said.Hear(body, e.binding)
			}
			return said
		})
	}
	if u, ok := parseUsage(body); ok || status >= 400 {
		return u
	}
	if a.exchange.bridged() {
		return a.exchange.bridgedUsage(chatBytes(body, "message"))
	}
	return estimate(a.exchange, int64(len(body)/bytesPerToken))
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

func usageOf(body []byte) agentbus.Usage {
	u, _ := parseUsage(body)
	return u
}

// bytesPerToken is the usual rule of thumb for English text.
const bytesPerToken = 4

func estimate(x *exchange, output int64) agentbus.Usage {
	return agentbus.Usage{InputTokens: int64(len(x.body) / bytesPerToken), OutputTokens: output, Estimated: true}
}

// parseUsage reads the usage object of an answer, or of the last event of a
// stream, in the names of chat completions and of responses. One that tells no
// figure that can be one is none.
func parseUsage(body []byte) (u agentbus.Usage, told bool) {
	if !bytes.Contains(body, usageMark) {
		return u, false
	}
	v := gjson.GetBytes(body, "usage")
	if !v.IsObject() {
		v = gjson.GetBytes(body, "response.usage") // of response.completed
	}
	if !v.IsObject() {
		return u, false
	}
	read := func(to *int64, n gjson.Result) {
		if n.Type == gjson.Number && n.Num >= 0 && n.Num <= math.MaxInt32 {
			*to, told = int64(n.Num), true
		}
	}
	v.ForEach(func(key, n gjson.Result) bool {
		switch key.Str {
		case "prompt_tokens", "input_tokens":
			read(&u.InputTokens, n)
		case "completion_tokens", "output_tokens":
			read(&u.OutputTokens, n)
		case "prompt_tokens_details", "input_tokens_details":
			read(&u.CachedTokens, n.Get("cached_tokens"))
		case "cost":
			u.Cost, told = microsOf(n), told || n.Type == gjson.Number
		}
		return true
	})
	return u, told
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
