package server

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/openwop"
	"github.com/agentbus/agentbus/server/config"
)

// override gives a conversation what its run asked for in place of what is
// configured. What may not be overridden is refused with CodeInvalidRequest (E7).
func (s *wiring) override(c *conversation.Conversation, def *config.Conversation, o *openwop.Overrides) error {
	c.RecursionLimit, c.TokenBudget = o.RecursionLimit, o.TokenBudget
	if err := s.prompt(c, def, o.Prompts); err != nil {
		return err
	}
	if o.Model == "" && o.Temperature == nil && o.MaxTokens == 0 {
		return nil
	}
	models := 0
	for i := range c.Participants {
		a := s.cfg.Agents[def.Participants[i].Agent]
		if a.Kind != config.KindOpenAI {
			continue // it is no model, or has one of its own
		}
		models++
		p := &c.Participants[i]
		if o.Model != "" && o.Model != a.Model && !slices.Contains(a.Models, o.Model) {
			return notOverridden("model", a.Models, "%s may not be asked for it", p.Name)
		}
		p.Model, p.Temperature, p.MaxTokens = o.Model, o.Temperature, o.MaxTokens
	}
	if models == 0 {
		return notOverridden("model, temperature and maxTokens", nil, "no participant of %s is a model", c.Name)
	}
	return nil
}

// prompt sets the prompts of participants, by their nodes.
func (s *wiring) prompt(c *conversation.Conversation, def *config.Conversation, prompts map[string]string) error {
	of := map[string]int{}
	for i := range c.Participants {
		if s.cfg.Agents[def.Participants[i].Agent].Kind == config.KindOpenAI {
			node, _ := c.Participants[i].Node()
			of[node] = i
		}
	}
	for _, node := range slices.Sorted(maps.Keys(prompts)) {
		i, known := of[node]
		if !known {
			return notOverridden("promptOverrides", slices.Sorted(maps.Keys(of)), "no participant that is a model is the node %.100q", node)
		}
		c.Participants[i].Prompt = prompts[node]
	}
	return nil
}

// notOverridden refuses a member of configurable.
func notOverridden(member string, supported []string, format string, args ...any) error {
	return &agentbus.Error{
		Code: agentbus.CodeInvalidRequest, Message: "configurable." + member + ": " + fmt.Sprintf(format, args...),
		Explain: &agentbus.Explain{Rule: "E7", Supported: supported, Next: "leave it out, or ask the operator to allow it"},
	}
}
