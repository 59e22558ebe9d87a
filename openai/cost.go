package openai

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// Headers, or trailers, in which a bus says what its answer is and what it
// charged for it.
const (
	headerCost     = "X-Agentbus-Cost-Usd"      // for this answer: 0 when it came from memory
	headerTurnCost = "X-Agentbus-Turn-Cost-Usd" // for the turn, when it was executed
	headerReplay   = "X-Agentbus-Replay"        // the answer came from memory
	headerAttempts = "X-Agentbus-Attempts"      // the answer is a bus's
)

// charged returns what a bus says it charged for the answer with these headers
// and trailers, and whether it says so. What the turn cost is preferred: a
// replayed answer is free, but the turn was not.
func charged(header, trailer http.Header) (agentbus.Micros, bool) {
	for _, name := range [...]string{headerTurnCost, headerCost} {
		for _, h := range [...]http.Header{trailer, header} {
			if m, ok := dollars(h.Get(name)); ok {
				return m, true
			}
		}
	}
	return 0, false
}

// dollars reads a JSON number of US dollars. What is no amount is none: the
// other side's word is only as good as that.
func dollars(s string) (agentbus.Micros, bool) {
	if strings.ContainsAny(s, "eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f > 9e9 {
			return 0, false
		}
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	m, err := agentbus.ParseUSD(s)
	return m, err == nil
}
