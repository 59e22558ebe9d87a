package config

import (
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// conversations checks each conversation, and that none is part of itself.
func (l *loader) conversations() {
	sorted := names(l, "conversations", l.c.Conversations)
	for _, name := range sorted {
		c := l.c.Conversations[name]
		l.conversation(&c, join("conversations", name))
		l.c.Conversations[name] = c
	}
	done := map[string]bool{}
	for _, name := range sorted {
		l.loop(name, nil, done)
	}
}

func (l *loader) conversation(c *Conversation, path string) {
	p := join(path, "participants")
	if n := len(c.Participants); n < 2 && !l.faulty(p) {
		l.fault(p, "a conversation needs two participants or more (R1)", "add one")
	}
	if c.Plan == PlanAlternate && len(c.Participants) > 2 {
		l.fault(join(path, "plan"), "alternate is for exactly two participants (R3)", "write plan: round-robin")
	}
	if c.Plan == "" {
		c.Plan = PlanRoundRobin
		if len(c.Participants) == 2 {
			c.Plan = PlanAlternate
		}
	}
	slugs := map[string]int{}
	for i := range c.Participants {
		l.participant(c.Participants, i, slugs, item(p, i))
	}
	l.callPolicies(c, path)
}

// participant checks the i-th of ps. Two of one slug would share turn ids
// (P15).
func (l *loader) participant(ps []Participant, i int, slugs map[string]int, path string) {
	p := &ps[i]
	if p.Agent == "" {
		return // reported where it was read
	}
	if _, ok := l.c.Agents[p.Agent]; !ok {
		l.fault(join(path, "agent"), "there is no agent "+quote(p.Agent), known("agents", p.Agent, l.c.Agents))
	}
	if p.Label == "" {
		p.Label = p.Agent
	}
	own := agentbus.Speaker(p.Agent).Slug()
	if p.Slug == "" {
		p.Slug = own
	} else if agentbus.Speaker(p.Slug).Slug() != p.Slug {
		l.fault(join(path, "slug"), quote(p.Slug)+" is not a slug", "use lower-case letters, digits, _ and - (P14)")
	}
	if first, twice := slugs[p.Slug]; twice {
		l.fault(path, "participants "+quote(ps[first].Agent)+" and "+quote(p.Agent)+" both have the slug "+p.Slug+" (P15)", "give one of them another with slug:")
		return
	}
	slugs[p.Slug] = i
}

// loop reports a conversation that is reached again through its participants:
// every one of its runs would start another, until the depth limit.
func (l *loader) loop(name string, path []string, done map[string]bool) {
	if i := slices.Index(path, name); i >= 0 {
		l.fault(join("conversations", name), "it takes part in itself: "+strings.Join(append(path[i:], name), " → "), "remove one of these participants")
		return
	}
	if done[name] {
		return
	}
	path = append(slices.Clip(path), name)
	for _, p := range l.c.Conversations[name].Participants {
		if a := l.c.Agents[p.Agent]; a.Kind == KindConversation {
			l.loop(a.Conversation, path, done)
		}
	}
	done[name] = true
}
