package conversation

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/agentbus/agentbus"
)

// script is what one participant is sent (R4). It only grows, and its digest
// with it, so that a turn costs the same however long the run is.
type script struct {
	messages []agentbus.Message
	seen     int       // of messages, those it was sent or has said already
	sum      hash.Hash // over messages
}

// add appends a message.
func (s *script) add(m agentbus.Message) {
	s.messages = append(s.messages, m)
	var length [2 * binary.MaxVarintLen64]byte
	b := binary.AppendUvarint(length[:0], uint64(len(m.Role)))
	b = binary.AppendUvarint(b, uint64(len(m.Content)))
	s.sum.Write(b)
	s.sum.Write([]byte(m.Role))
	s.sum.Write([]byte(m.Content))
}

// answered identifies what a turn was answered, to who knows what it was asked:
// so that its event tells a replay of another answer (R23), and nobody else what
// a short one was.
func answered(t *agentbus.Turn) (d agentbus.Digest) {
	parts := []string{t.Reply.Text, t.Reply.Reasoning, t.Reply.Model, t.Reply.Finish}
	for _, c := range t.Reply.ToolCalls {
		parts = append(parts, c.ID, c.Name, c.Arguments)
	}
	for _, receipt := range t.Reply.Receipts {
		parts = append(parts, text(receipt)) // as a store gives it back
	}
	sum := sha256.New()
	sum.Write(t.Digest[:])
	var length [binary.MaxVarintLen64]byte
	for _, s := range parts {
		sum.Write(binary.AppendUvarint(length[:0], uint64(len(s))))
		sum.Write([]byte(s))
	}
	sum.Sum(d[:0])
	return d
}

// digest is that of all messages.
func (s *script) digest() (d agentbus.Digest) {
	s.sum.Sum(d[:0])
	return d
}

// begin gives everybody their prompt, and the seed.
func (d *driver) begin(seed string) {
	for i := range d.sent {
		d.sent[i] = script{sum: sha256.New()}
		if prompt := d.conversation.Participants[i].Prompt; prompt != "" {
			d.sent[i].add(agentbus.Message{Role: agentbus.RoleSystem, Content: prompt})
		}
		d.sent[i].add(agentbus.Message{Role: agentbus.RoleUser, Content: seed})
	}
}

// said tells everybody what participant who said in t: itself as its own words,
// the others under its label (R4). Tool calls stay in the turn: a list of
// messages that holds one must hold its result too.
func (d *driver) said(who int, t *agentbus.Turn) {
	if t.Reply.Text == "" {
		return
	}
	label := string(t.Speaker)
	if who >= 0 {
		label = d.conversation.Participants[who].label()
	}
	heard := agentbus.Message{Role: agentbus.RoleUser, Content: "[" + label + "] " + t.Reply.Text}
	for i := range d.sent {
		if i != who {
			d.sent[i].add(heard)
			continue
		}
		d.sent[i].add(agentbus.Message{Role: agentbus.RoleAssistant, Content: t.Reply.Text})
		d.sent[i].seen = len(d.sent[i].messages)
	}
}
