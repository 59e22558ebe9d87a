package conversation_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// aTalk is any conversation of whims. Unless they are calm, others may answer in it.
func aTalk(rt *rapid.T, w *whims, plans int, name string) conversation.Conversation {
	c := talk(rapid.IntRange(1, 7).Draw(rt, "turns"))
	c.Name = name
	n := rapid.IntRange(2, 4).Draw(rt, "participants")
	var names conversation.RoundRobin
	for i := range n {
		p := conversation.Participant{Name: agentbus.Speaker([]string{"Ann", "bob", "Čar", "d d"}[i]), Backend: w}
		p.MaxCost = agentbus.Micros(rapid.SampledFrom([]int{0, 5, 9}).Draw(rt, "worst"))
		p.MaxTokens = rapid.SampledFrom([]int{0, 4, 7}).Draw(rt, "worst tokens")
		if rapid.Bool().Draw(rt, "owned") {
			p.Auth = conversation.AuthAgentOwned
		}
		p.Decides = !w.calm && rapid.IntRange(0, 2).Draw(rt, "decides") == 0
		if !w.calm && name == "talk" && rapid.IntRange(0, 3).Draw(rt, "inner") == 0 {
			p.Backend = conversation.Backend(conversation.BackendConfig{Conversation: aTalk(rt, w, plans, fmt.Sprint("inner", i))})
		}
		c.Participants, names = append(c.Participants, p), append(names, p.Name)
	}
	aPlan(rt, w, &c, names, plans)
	c.RecursionLimit = rapid.SampledFrom([]int{0, 0, 0, 2, 5}).Draw(rt, "recursion")
	c.TokenBudget = int64(rapid.SampledFrom([]int{0, 0, 0, 6, 13}).Draw(rt, "tokens"))
	if !w.calm && rapid.IntRange(0, 2).Draw(rt, "on halt") == 0 {
		c.OnHalt = conversation.OnHaltFail
	}
	switch rapid.IntRange(0, 2).Draw(rt, "halt") {
	case 0:
		c.HaltContains = "STOP"
	case 1:
		c.HaltWhen = func(turns []agentbus.Turn) (string, bool) {
			w.moment()
			return "again", strings.Contains(turns[len(turns)-1].Reply.Text, "again")
		}
	}
	return c
}

// How many plans aPlan draws from: those behind plansOfOne ask several at once.
const plansOfOne, allPlans = 6, 10

// aPlan gives a conversation any plan.
func aPlan(rt *rapid.T, w *whims, c *conversation.Conversation, names conversation.RoundRobin, plans int) {
	join := rapid.SampledFrom([]conversation.Join{"", conversation.JoinAny, conversation.JoinQuorum(2), conversation.JoinBestEffort}).Draw(rt, "join")
	both := conversation.Step{Together: names[:2], Join: join}
	var relay conversation.Relay
	for _, name := range names {
		relay = append(relay, conversation.Peer{Speaker: name})
	}
	switch rapid.IntRange(0, plans-1).Draw(rt, "plan") {
	case 0: // the default
	case 1:
		c.Plan = slices.Concat(names, names[:1])
	case 2:
		c.Plan = conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
			w.moment()
			return conversation.Step{Speaker: names[len(done)*3%len(names)], Say: fmt.Sprint("say ", len(done)), Done: len(done) == 4, Reason: "four"}, nil
		})
	case 3:
		c.Plan = conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
			if len(done) == 3 {
				return conversation.Step{}, reset
			}
			return conversation.Step{Speaker: names[0]}, nil
		})
	case 4:
		c.Plan = relay
	case 5:
		c.Plan = conversation.Moderator{Decides: names[0], Others: names[1:]}
	case 6:
		c.Plan, c.MaxTurns = conversation.FanOut{Ask: names, Join: join}, 9
	case 7:
		c.Plan, c.MaxTurns = conversation.FanOut{Ask: names[1:], Join: conversation.JoinBestEffort, Synthesizer: names[0]}, 9
	case 8:
		both.Say = "both"
		c.Plan = thirds(w, both, names)
	case 9:
		c.Plan = thirds(w, both, relay)
	}
}

// thirds is a plan of which every third step, from the second on, is of several.
func thirds(w *whims, several conversation.Step, other conversation.Plan) conversation.Plan {
	return conversation.PlanFunc(func(done []agentbus.Turn) (conversation.Step, error) {
		w.moment()
		if len(done)%3 == 1 {
			return several, nil
		}
		return other.Next(done)
	})
}
