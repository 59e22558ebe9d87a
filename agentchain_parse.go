package agentbus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// MaxChainHops is the most hops that a chain of agents may claim (C5).
const MaxChainHops = 64

// The members of an agent chain on the wire (C1).
const (
	chainHop   = "hop"
	chainMax   = "max_hops"
	chainFinal = "is_final"
)

// ParseAgentChain reads an agent chain as it was sent (C5): hop and max_hops in
// digits only, from 1 to [MaxChainHops], hop at most max_hops; is_final true,
// false or absent, and not false at the last hop. Anything else fails with
// CodeInvalidLineage. A member that stands there twice, or once more in another
// case, fails with CodeInvalidRequest: two readers could take it for two chains.
// Members that are not known are passed over. What is returned is what was
// claimed; see [AgentChain.Bound] for what holds.
func ParseAgentChain(raw []byte) (AgentChain, error) {
	m, err := chainMembers(raw)
	if err != nil {
		return AgentChain{}, err
	}
	var c AgentChain
	if c.Hop, err = chainNumber(m, chainHop); err != nil {
		return AgentChain{}, err
	}
	if c.MaxHops, err = chainNumber(m, chainMax); err != nil {
		return AgentChain{}, err
	}
	if c.Hop > c.MaxHops {
		return AgentChain{}, badChain(c.Hop, "the hop of an agent chain is beyond its max_hops")
	}
	switch final, said := m[chainFinal]; {
	case !said:
		c.Final = c.Hop == c.MaxHops
	case string(final) == "true":
		c.Final = true
	case string(final) != "false":
		return AgentChain{}, badChain(clip(string(final)), "is_final of an agent chain is neither true nor false")
	case c.Hop == c.MaxHops:
		return AgentChain{}, badChain("is_final", "the last hop of an agent chain says that it is not final")
	}
	return c, nil
}

// ParseAgentChains reads a chain that came in several places (C4): they must say
// the same, as JSON. Places that hold nothing are left out; found is false when
// all do.
func ParseAgentChains(places ...[]byte) (c AgentChain, found bool, err error) {
	var first any
	for _, raw := range places {
		if len(raw) == 0 {
			continue
		}
		next, err := ParseAgentChain(raw)
		if err != nil {
			return AgentChain{}, false, err
		}
		value, err := jsonValue(raw)
		if err != nil {
			return AgentChain{}, false, badChain(nil, "an agent chain is not JSON")
		}
		if found && !reflect.DeepEqual(first, value) {
			return AgentChain{}, false, badChain("copies", "the copies of an agent chain differ")
		}
		c, first, found = next, value, true
	}
	return c, found, nil
}

// chainMembers reads the members of a JSON object, each once.
func chainMembers(raw []byte) (map[string]json.RawMessage, error) {
	m := map[string]json.RawMessage{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, badChain(nil, "an agent chain is a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err = errors.Join(err, dec.Decode(&value)); err != nil || !ok {
			return nil, badChain(nil, "an agent chain is not JSON")
		}
		for _, known := range [...]string{chainHop, chainMax, chainFinal} {
			if _, twice := m[known]; strings.EqualFold(name, known) && (twice || name != known) {
				return nil, &Error{
					Code: CodeInvalidRequest, Message: "the key " + known + " of an agent chain stands there twice, or in another case",
					Explain: &Explain{Rule: "A4", Observed: known, Next: "send " + known + " once, in lower case"},
				}
			}
		}
		m[name] = value
	}
	if end, err := dec.Token(); err != nil || end != json.Delim('}') || !ended(dec) {
		return nil, badChain(nil, "an agent chain is not JSON")
	}
	return m, nil
}

func chainNumber(m map[string]json.RawMessage, name string) (int, error) {
	text, n := string(m[name]), 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' || n > MaxChainHops {
			n = 0
			break
		}
		n = n*10 + int(c-'0')
	}
	if n < 1 || n > MaxChainHops {
		return 0, badChain(clip(text), fmt.Sprintf("%s of an agent chain is not a number from 1 to %d", name, MaxChainHops))
	}
	return n, nil
}

// jsonValue reads one JSON value, its numbers as they are written.
func jsonValue(raw []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

func badChain(observed any, message string) *Error {
	return &Error{
		Code: CodeInvalidLineage, Message: message,
		Explain: &Explain{Rule: "C5", Observed: observed, Limit: MaxChainHops, Next: `send {"hop": 1, "max_hops": 4, "is_final": false} with hop counted from 1, or no chain at all`},
	}
}

// ended reports whether nothing but space follows.
func ended(dec *json.Decoder) bool {
	_, err := dec.Token()
	return errors.Is(err, io.EOF)
}
