package gateway_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// TestStormOfRefusals: P12, G2: beyond the pace of their payer refusals are counted
// together, none is lost, and what has a record is still repeated on it. Others have
// records of their own all the same.
func TestStormOfRefusals(t *testing.T) {
	t.Parallel()
	const sent, repeats = 60, 5
	b := newBus(t, func(c *gateway.Config) { c.ListedRefusals = 1 }, newAgent(t, "critic", nil)) // and ten at once
	refuse := func(run string) {
		t.Helper()
		refused(t, run, b.call("critic", append(turn(run, run+".t0.critic"), depth+"4")...), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	}
	began := time.Now()
	refuse("storm0")
	b.one("storm0", agentbus.CallRefused) // recorded behind its answer: the others are to come later
	for i := 1; i < sent; i++ {
		refuse("storm" + strconv.Itoa(i))
	}
	for range repeats {
		refuse("storm0")
	}
	listed := func() (n int) {
		for i := range sent {
			n += len(b.calls("storm" + strconv.Itoa(i)))
		}
		return n
	}
	together := b.await("", func(calls []agentbus.CallRecord) bool { // behind the answers
		counted := 0
		for _, c := range calls {
			counted += 1 + c.Repeats
		}
		return listed()+counted == sent
	})
	if n, most := listed(), 11+int(time.Since(began).Seconds()); n < 10 || n > most { // one more for each second that passed
		t.Errorf("%d of %d refusals have a record of their own, want 10 to %d", n, sent, most)
	}
	for _, c := range together {
		if c.State != agentbus.CallRefused || c.Payer != "alice" || c.Agent != "critic" || c.Code != agentbus.CodeDepthExceeded || c.Status != http.StatusTooManyRequests || c.TurnKey.ID != "" || c.Cost != 0 {
			t.Errorf("counted in %+v", c)
		}
	}
	b.await("storm0", func(calls []agentbus.CallRecord) bool { return len(calls) == 1 && calls[0].Repeats == repeats })
	refused(t, "bob", b.send(http.MethodPost, chatRoute, ask("critic"), append(turn("his", "his.t0.critic"), depth+"4", asBob)...), http.StatusTooManyRequests, agentbus.CodeDepthExceeded)
	b.one("his", agentbus.CallRefused)
}

// TestStormOverNames: G2, refusals of agents that there are not are counted together,
// whatever the caller calls them.
func TestStormOverNames(t *testing.T) {
	t.Parallel()
	const sent = 40
	b := newBus(t, func(c *gateway.Config) { c.ListedRefusals = 1 }, newAgent(t, "critic", nil))
	began := time.Now()
	for i := range sent {
		name := "none" + strconv.Itoa(i)
		refused(t, name, b.send(http.MethodPost, "/agents/"+name+"/jobs", "{}", append(turn("r", name), asAlice)...), http.StatusNotFound, agentbus.CodeAgentNotFound)
	}
	together := b.await("", func(calls []agentbus.CallRecord) bool { // behind the answers
		counted := len(b.calls("r"))
		for _, c := range calls {
			counted += 1 + c.Repeats
		}
		return counted == sent
	})
	if n, most := len(b.calls("r")), 11+int(time.Since(began).Seconds()); n > most {
		t.Errorf("%d of %d refusals have a record of their own, want %d at most", n, sent, most)
	}
	if n, most := len(together), 2+int(time.Since(began).Minutes()); n > most || n > 0 && together[0].Agent != "" { // one a minute
		t.Errorf("%d records count them, want %d at most: %+v", n, most, together)
	}
}
