package openwop

import (
	"encoding/json"
	"time"

	"github.com/agentbus/agentbus"
)

// converse opens a conversation, exchanges turns, and closes it (E46). It answers
// itself where its configuration says so, else each exchange waits for an answer.
func converse(a *activation) (json.RawMessage, error) {
	c := struct {
		TurnCount      int    `json:"turnCount"`
		MockAutoResume bool   `json:"mockAutoResume"`
		InitialPrompt  string `json:"initialPrompt"`
	}{TurnCount: 1, InitialPrompt: "Shall we begin?"}
	if err := a.config(&c); err != nil {
		return nil, err
	}
	if c.TurnCount < 1 || c.TurnCount > maxNodeExecutions {
		return nil, fail("invalid_config", "turnCount is not between 1 and %d", maxNodeExecutions)
	}
	id := a.conversation(a.index)
	speaker := agentbus.AgentRef{AgentID: "host:" + a.node.ID}
	turn := func(n int, role, from string, content any) agentbus.ConversationTurn {
		t := agentbus.ConversationTurn{
			MessageID: agentbus.MessageID(id, n, role), From: from, Content: content, TS: time.Now().UnixMilli(), Role: role, TurnIndex: n,
		}
		if role == agentbus.TurnRoleAgent {
			t.SpeakerID = from
		}
		return t
	}
	_, declared := a.wf.Channels["conversation"]
	last := a.opened(id, speaker, turn(0, "user", "user", c.InitialPrompt), declared)
	for n := 1; n <= c.TurnCount; n++ {
		next := turn(n, agentbus.TurnRoleAgent, speaker.AgentID, "turn "+itoa(n))
		if !c.MockAutoResume {
			answer, err := a.wait(question{
				kind: "conversation.exchange", reason: "conversation-input",
				data: map[string]any{"conversationId": id, "prompt": c.InitialPrompt, "turnIndex": n},
				ask:  agentbus.Ask{Kind: agentbus.AskClarification, Prompt: c.InitialPrompt},
			})
			if err != nil {
				return nil, err
			}
			next = turn(n, "user", "user", contentOf(answer))
		}
		e := a.emit(agentbus.EventConversationExchanged, nil, agentbus.ConversationExchanged{ConversationID: id, TurnIndex: n, Turn: next})
		if p, ok := payload[agentbus.ConversationExchanged](&agentbus.Event{Data: e.data}); ok {
			next = p.Turn // as it was said, when it was said before
		}
		if last = next; declared {
			a.write("conversation", next)
		}
	}
	a.emit(agentbus.EventConversationClosed, nil, agentbus.ConversationClosed{
		ConversationID: id, TurnIndex: c.TurnCount, FinalTurn: last, Outcome: map[string]any{"turns": c.TurnCount},
	})
	return oneLine(map[string]any{"conversationId": id, "turns": c.TurnCount})
}

func (a *activation) opened(id string, speaker agentbus.AgentRef, first agentbus.ConversationTurn, declared bool) agentbus.ConversationTurn {
	e := a.emit(agentbus.EventConversationOpened, nil, agentbus.ConversationOpened{
		ConversationID: id, InitialTurn: first, AgentID: speaker.AgentID, Participants: []agentbus.AgentRef{speaker}, Capabilities: []string{"multi-turn"},
	})
	if p, ok := payload[agentbus.ConversationOpened](&agentbus.Event{Data: e.data}); ok {
		first = p.InitialTurn
	}
	if declared {
		a.write("conversation", first)
	}
	return first
}

// contentOf is what an answer says: its member content, or all of it.
func contentOf(answer json.RawMessage) any {
	var of struct {
		Content any `json:"content"`
	}
	if json.Unmarshal(answer, &of) == nil && of.Content != nil {
		return of.Content
	}
	var v any
	_ = json.Unmarshal(answer, &v) // it is JSON
	return v
}
