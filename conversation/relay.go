package conversation

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentbus/agentbus"
)

// Relay is a Plan: its peers in order, over and over, but whom a reply mentions
// speaks next (C14). A mention is "@" and a peer's name, as turn ids have it, or the
// name of its agent, or "@" and its address. The first one in the reply that is of another peer counts;
// in an e-mail address, or with more behind it, it is none. The turn that it gives is
// made inside of the one that wrote it, a hop further in the chain of agents; where
// that one was the last, whoever comes next in the order speaks instead (C7, C8).
type Relay []Peer

// A Peer is a participant that others can mention.
type Peer struct {
	Speaker agentbus.Speaker
	Agent   string           // the name of its agent; "": it has no other name
	Address agentbus.Address // the zero one: it has none
}

// Next returns whom the last reply mentions, else the one after who spoke last.
func (r Relay) Next(turns []agentbus.Turn) (Step, error) {
	if len(r) == 0 {
		return Step{Done: true, Reason: "nobody takes part"}, nil
	}
	if len(turns) == 0 {
		return Step{Speaker: r[0].Speaker}, nil
	}
	last := &turns[len(turns)-1]
	next := r[(r.index(last.Speaker)+1)%len(r)].Speaker
	if named := r.mentioned(last); named != "" {
		return Step{Speaker: named, Inside: true, Instead: next}, nil
	}
	return Step{Speaker: next}, nil
}

// index returns which peer speaks under a name, or -1.
func (r Relay) index(s agentbus.Speaker) int {
	for i := range r {
		if r[i].Speaker == s {
			return i
		}
	}
	return -1
}

// mentioned returns the first other peer that a turn mentions; "" when it
// mentions none.
func (r Relay) mentioned(t *agentbus.Turn) agentbus.Speaker {
	for mention := range mentions(t.Reply.Text) {
		for i := range r {
			if r[i].Speaker != t.Speaker && r[i].is(mention) {
				return r[i].Speaker
			}
		}
	}
	return ""
}

// Mentioned returns which peers a text mentions, in the order in which it does, each
// once. A mention is what it is to a [Relay].
func Mentioned(text string, peers []Peer) (named []agentbus.Speaker) {
	for mention := range mentions(text) {
		for i := range peers {
			if peers[i].is(mention) {
				if !slices.Contains(named, peers[i].Speaker) {
					named = append(named, peers[i].Speaker)
				}
				break
			}
		}
	}
	return named
}

// mentions are the mentions in a text.
func mentions(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := strings.IndexByte(text, '@'); at >= 0; {
			mention := mentionAt(text, at)
			if mention != "" && !yield(mention) {
				return
			}
			from := at + max(len(mention), 1)
			next := strings.IndexByte(text[from:], '@')
			if next < 0 {
				return
			}
			at = from + next
		}
	}
}

// maxMention is more bytes than an address has.
const maxMention = 1 + 64 + 1 + 253

// mentionAt returns the mention that begins at the "@" at an index of text, without the dots of a sentence
// that ends with it; "" when it is none.
func mentionAt(text string, at int) string {
	if before, _ := utf8.DecodeLastRuneInString(text[:at]); at > 0 && inMention(before) {
		return "" // an e-mail address, or the rest of something else
	}
	end := at + 1
	for end < len(text) && end-at <= maxMention && text[end] < utf8.RuneSelf && inMention(rune(text[end])) {
		end++
	}
	if after, _ := utf8.DecodeRuneInString(text[end:]); end < len(text) && inMention(after) {
		return ""
	}
	return strings.TrimRight(text[at:end], ".")
}

// inMention reports whether c is, or continues, a mention.
func inMention(c rune) bool {
	return c == '@' || c == '.' || c == '_' || c == '-' || unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c)
}

// is reports whether a mention is of p.
func (p *Peer) is(mention string) bool {
	if name := mention[1:]; name != "" && !strings.Contains(name, "@") {
		slug := agentbus.Speaker(name).Slug()
		return slug == p.Speaker.Slug() || p.Agent != "" && slug == agentbus.Speaker(p.Agent).Slug()
	}
	address, err := agentbus.ParseAddress(mention)
	return err == nil && !p.Address.IsZero() && p.Address.Equal(address)
}

// faults returns what is wrong with r.
func (r Relay) faults() (faults []error) {
	if len(r) == 0 {
		return []error{errors.New("plan: relay names nobody")}
	}
	if twice, ok := repeated(r.speakers()); ok {
		faults = append(faults, fmt.Errorf("plan: relay names %q twice", twice))
	}
	return faults
}

func (r Relay) speakers() []agentbus.Speaker {
	names := make([]agentbus.Speaker, len(r))
	for i := range r {
		names[i] = r[i].Speaker
	}
	return names
}
