package openwop

import (
	"encoding/json"

	"github.com/agentbus/agentbus"
)

// A channel is the value of a channel of a run.
type channel struct {
	value json.RawMessage            // of a channel that is no list
	list  []json.RawMessage          // of one that is
	known map[string]struct{}        // the ids of its messages
	merge map[string]json.RawMessage // of one that is merged
	sum   float64
	kind  string
}

// write folds one write. The reducer of messages appends, and knows a message
// again by its id: the first one counts, and the second changes nothing (E47).
func (c *channel) write(reducer string, value json.RawMessage) {
	c.kind = reducer
	switch reducer {
	case agentbus.ReducerMessage:
		var m struct {
			MessageID string `json:"messageId"`
		}
		if json.Unmarshal(value, &m) == nil && m.MessageID != "" {
			if _, twice := c.known[m.MessageID]; twice {
				return
			}
			if c.known == nil {
				c.known = map[string]struct{}{}
			}
			c.known[m.MessageID] = struct{}{}
		}
		c.list = append(c.list, value)
	case "append", "feedback", "votes":
		c.list = append(c.list, value)
	case "merge":
		if c.merge == nil {
			c.merge = map[string]json.RawMessage{}
		}
		_ = json.Unmarshal(value, &c.merge) // what is no object changes nothing
	case "counter":
		var n float64
		if json.Unmarshal(value, &n) == nil {
			c.sum += n
		}
	default:
		c.value = value
	}
}

// json returns the value. Its text is the same for the same writes.
func (c *channel) json() json.RawMessage {
	var v any = c.value
	switch c.kind {
	case agentbus.ReducerMessage, "append", "feedback", "votes":
		v = c.list
	case "merge":
		v = c.merge
	case "counter":
		v = c.sum
	}
	out, err := oneLine(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return out
}
