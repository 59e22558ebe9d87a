package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// joinRE is the pattern of join in the schema.
var joinRE = regexp.MustCompile("^(all|any|best-effort|quorum:[1-9][0-9]{0,3})$")

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
	l.speakers(c, p)
	switch c.Plan {
	case PlanModerator:
		l.moderator(c, path)
	case PlanFanOut:
		l.fanOut(c, path)
	case PlanAlternate, PlanRoundRobin, PlanRelay:
	}
	if at := join(path, "join"); c.Join != "" && !joinRE.MatchString(c.Join) && !l.faulty(at) {
		l.fault(at, quote(c.Join)+" is not a join", "write all, any, best-effort or quorum:K")
	}
	l.misplaced(c, path)
	l.callPolicies(c, path)
}

// misplaced reports keys that belong to another plan.
func (l *loader) misplaced(c *Conversation, path string) {
	for key, set := range map[string]bool{"join": c.Join != "", "synthesizer": c.Synthesizer != "", "mentions": c.Mentions} {
		if set && c.Plan != PlanFanOut {
			l.fault(join(path, key), "it belongs to plan: fan-out, and the plan is "+string(c.Plan), "remove it, or write plan: fan-out")
		}
	}
	if c.Moderator != "" && c.Plan != PlanModerator {
		l.fault(join(path, "moderator"), "it belongs to plan: moderator, and the plan is "+string(c.Plan), "remove it, or write plan: moderator")
	}
}

// moderator checks who decides, by either key.
func (l *loader) moderator(c *Conversation, path string) {
	var deciding []string
	speakers := c.Speakers()
	for i := range c.Participants {
		if c.Participants[i].Decides {
			deciding = append(deciding, speakers[i])
		}
	}
	if c.Moderator == "" && len(deciding) == 1 {
		c.Moderator = deciding[0]
	}
	switch {
	case c.Moderator == "" && len(deciding) == 0:
		l.fault(join(path, "plan"), "moderator needs somebody who decides", "write moderator: NAME, one of the participants")
		return
	case len(deciding) > 1:
		l.fault(join(path, "participants"), strings.Join(deciding, " and ")+" decide, and one may", "leave decides: true at one of them")
	case len(deciding) == 1 && deciding[0] != c.Moderator:
		l.fault(join(path, "moderator"), quote(deciding[0])+" decides already", "remove decides: true there, or this key")
	}
	l.partakes(c, c.Moderator, join(path, "moderator"))
	for i, speaker := range speakers {
		if speaker == c.Moderator {
			c.Participants[i].Decides = true
		} else if agentbus.Speaker(speaker).Slug() == "done" {
			l.fault(item(join(path, "participants"), i), "a moderator ends with done, so nobody can have that name", "give it another name")
		}
	}
}

// fanOut checks who is asked, and that the limits hold.
func (l *loader) fanOut(c *Conversation, path string) {
	if c.Mentions && c.Join == "" {
		c.Join = JoinBestEffort // who mentions several wants what there is
	}
	if at := join(path, "join"); c.Mentions && strings.HasPrefix(c.Join, "quorum:") {
		l.fault(at, "a message may mention fewer than a quorum", "write all, any or best-effort, or remove mentions")
	}
	turns, width := len(c.Participants), len(c.Participants)
	if c.Synthesizer != "" {
		if l.partakes(c, c.Synthesizer, join(path, "synthesizer")); width > 0 {
			width--
		}
	}
	if limit := l.c.Limits.MaxWidth; width > limit && !l.faulty("limits.max_width") {
		l.fault(join(path, "participants"), strconv.Itoa(width)+" are asked at once, and limits.max_width is "+strconv.Itoa(limit)+" (R20)", "raise limits.max_width, or ask fewer")
	}
	if k, ok := strings.CutPrefix(c.Join, "quorum:"); ok && joinRE.MatchString(c.Join) {
		if n, err := strconv.Atoi(k); err == nil && n > width {
			l.fault(join(path, "join"), "it needs "+k+" answers, and "+strconv.Itoa(width)+" are asked", "write quorum:"+strconv.Itoa(width)+" or less")
		}
	}
	at := join(path, "max_turns")
	if _, set := l.c.origins[at]; !set {
		c.MaxTurns = max(c.MaxTurns, turns) // the default is about taking turns
	}
	if c.MaxTurns < turns && !l.faulty(at) {
		l.fault(at, "this fan-out takes "+strconv.Itoa(turns)+" turns", "write "+strconv.Itoa(turns)+" or more, or leave it out")
	}
}

// partakes checks that a name is one of the participants.
func (l *loader) partakes(c *Conversation, name, path string) {
	all := c.Speakers()
	if !slices.Contains(all, name) && !l.faulty(path) {
		l.fault(path, quote(name)+" is no participant", "name one of "+strings.Join(all, ", "))
	}
}

// speakers checks that names tell who is meant (R1), and labels those who have
// no label. Two of one slug were reported as such.
func (l *loader) speakers(c *Conversation, path string) {
	first := map[string]int{}
	for i, name := range c.Speakers() {
		p := &c.Participants[i]
		if p.Label == "" {
			p.Label = name
		}
		if other, twice := first[name]; twice && name != "" && c.Participants[other].Slug != p.Slug {
			l.fault(item(path, i), quote(name)+" is the name of two participants (R1)", "give one of them another slug")
		}
		first[name] = i
	}
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
