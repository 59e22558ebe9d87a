package conversation

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// Moderator is a Plan: Decides speaks first and after everybody else, and its
// reply names who speaks next. It is told so before its first turn.
//
// The name is looked for in three places, the first that has one counts:
//
//   - the last line that is not blank: next: NAME, or done
//   - the whole reply, or that last line, as JSON: {"next": "NAME"}, or
//     {"next": "done"}
//   - the whole reply: NAME, or done
//
// A reply that is one block of code between fences is what stands in it.
// Names are compared as turn ids have them: "@Critic." is critic. A reply that
// names nobody of Others gives the word to the one after who had it last, in the
// order of Others; at first, to the first of them. That is also so when the
// moderator names itself.
type Moderator struct {
	Decides agentbus.Speaker
	Others  []agentbus.Speaker
}

// saysDone is what a moderator says to end it: no participant can have the name.
const saysDone = "done"

// Next returns the moderator, then whoever it named.
func (m Moderator) Next(turns []agentbus.Turn) (Step, error) {
	n := len(turns)
	switch {
	case len(m.Others) == 0:
		return Step{Done: true, Reason: "nobody takes part"}, nil
	case n == 0:
		return Step{Speaker: m.Decides, Say: m.rules()}, nil
	case turns[n-1].Speaker != m.Decides:
		return Step{Speaker: m.Decides}, nil
	}
	named := namedIn(turns[n-1].Reply.Text)
	if slices.Contains(named, saysDone) {
		return Step{Done: true, Reason: string(m.Decides) + " said " + saysDone}, nil
	}
	for _, name := range named {
		if i := slices.IndexFunc(m.Others, func(s agentbus.Speaker) bool { return s.Slug() == name }); i >= 0 {
			return Step{Speaker: m.Others[i]}, nil
		}
	}
	return Step{Speaker: m.after(turns)}, nil
}

// after returns who follows the last of the others that spoke.
func (m Moderator) after(turns []agentbus.Turn) agentbus.Speaker {
	for i := range slices.Backward(turns) {
		if at := slices.Index(m.Others, turns[i].Speaker); at >= 0 {
			return m.Others[(at+1)%len(m.Others)]
		}
	}
	return m.Others[0]
}

// rules is what a moderator is told.
func (m Moderator) rules() string {
	names := make([]string, len(m.Others))
	for i, s := range m.Others {
		names[i] = string(s)
	}
	return "You moderate. End each of your replies with a line of its own: \"next: NAME\" to say who speaks next, one of " +
		strings.Join(names, ", ") + "; or \"" + saysDone + "\" when it is over."
}

// namedIn returns the slugs that a reply may name, in the order in which they
// count.
func namedIn(reply string) (slugs []string) {
	whole := unfenced(reply)
	last := strings.TrimSpace(whole[strings.LastIndexByte(whole, '\n')+1:])
	slug := func(name string) {
		if name = strings.TrimSpace(name); name != "" && len(name) <= maxName {
			slugs = append(slugs, agentbus.Speaker(name).Slug())
		}
	}
	if key, name, ok := strings.Cut(last, ":"); ok && agentbus.Speaker(key).Slug() == "next" {
		slug(name)
	} else if len(last) <= maxName && agentbus.Speaker(last).Slug() == saysDone {
		slug(last)
	}
	for _, text := range []string{whole, last} {
		var says struct {
			Next string `json:"next"`
		}
		if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &says) == nil {
			slug(says.Next)
		}
	}
	slug(whole)
	return slugs
}

// unfenced returns a reply without the space around it, and without the fence of a
// block of code that is all of it: models put one around JSON.
func unfenced(reply string) string {
	const fence = "```"
	whole := strings.TrimSpace(reply)
	opening, rest, lines := strings.Cut(whole, "\n")
	block, closed := strings.CutSuffix(rest, "\n"+fence)
	word, opened := strings.CutPrefix(strings.TrimSpace(opening), fence)
	if !lines || !closed || !opened || strings.ContainsAny(word, " \t`") || strings.Contains(block, fence) {
		return whole
	}
	return strings.TrimSpace(block)
}

// maxName bounds what is taken for a name, in bytes.
const maxName = 512

// faults returns what is wrong with m.
func (m Moderator) faults() (faults []error) {
	if len(m.Others) == 0 {
		faults = append(faults, errors.New("plan: moderator has nobody to name"))
	}
	if twice, ok := repeated(append(slices.Clip(m.Others), m.Decides)); ok {
		faults = append(faults, fmt.Errorf("plan: moderator names %q twice", twice))
	}
	for _, s := range m.Others {
		if s.Slug() == saysDone {
			faults = append(faults, fmt.Errorf("plan: moderator ends with %q, which is the name of a participant", saysDone))
		}
	}
	return faults
}
