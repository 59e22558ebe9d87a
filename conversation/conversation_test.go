package conversation_test

import (
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// R1, P15: the reference's definitions, and where ours is stricter.
func TestGoldenDefinitions(t *testing.T) {
	t.Parallel()
	var a agents
	definitions := map[string]struct {
		c     conversation.Conversation
		fault string // "": none
	}{
		"0 participants":                     {talk(1), "participants: at least 2"},
		"1 participant":                      {talk(1, "a", a.says("x")), "participants: at least 2"},
		"blank name":                         {talk(1, "a", a.says("x"), " ", a.says("x")), "participants[1].name: must not be blank"},
		"case differs":                       {talk(1, "a", a.says("x"), "A", a.says("x")), `"a" and "A" are both "a"`},   // P15
		"trailing space differs":             {talk(1, "a", a.says("x"), "a ", a.says("x")), `"a" and "a " are both "a"`}, // P15
		"maxTurns 0":                         {talk(0, "a", a.says("x"), "b", a.says("x")), "max_turns: must be at least 1, not 0"},
		"maxTurns 3":                         {talk(-3, "a", a.says("x"), "b", a.says("x")), "max_turns: must be at least 1, not -3"}, // "3", a string
		"maxCreditsCents -1":                 {budget(talk(1, "a", a.says("x"), "b", a.says("x")), -1), "budget: must not be negative"},
		"maxCreditsCents 0":                  {budget(talk(1, "a", a.says("x"), "b", a.says("x")), 0), ""},
		"alternate with 3":                   {plan(talk(1, "a", a.says("x"), "b", a.says("x"), "c", a.says("x")), conversation.Alternate{"a", "b"}), "plan: alternate needs exactly 2 participants, not 3; use round-robin"},
		"2 default order":                    {talk(1, "a", a.says("x"), "b", a.says("x")), ""},
		"unknown order string accepted here": {plan(talk(1, "a", a.says("x"), "b", a.says("x")), conversation.RoundRobin{"a", "zigzag"}), `plan: "zigzag" is no participant`},
		"maxTurns 1.5":                       {talk(1, "a", a.says("x"), "b", a.says("x")), ""}, // the type says it
		"maxTurns NaN":                       {talk(1, "a", a.says("x"), "b", a.says("x")), ""},
		"maxCreditsCents NaN":                {talk(1, "a", a.says("x"), "b", a.says("x")), ""},
	}
	for _, ref := range readReference(t).DefineConversation {
		d, ok := definitions[ref.Name]
		if !ok {
			t.Errorf("no definition for %q", ref.Name)
			continue
		}
		err := d.c.Validate()
		if (err == nil) != (d.fault == "") || err != nil && !strings.Contains(err.Error(), d.fault) {
			t.Errorf("%s: got %v, want %q", ref.Name, err, d.fault)
		}
	}
}

func budget(c conversation.Conversation, m agentbus.Micros) conversation.Conversation {
	c.Budget = &m
	return c
}

func plan(c conversation.Conversation, p conversation.Plan) conversation.Conversation {
	c.Plan = p
	return c
}

// R1: every fault at once, each naming its field; and nothing is run.
func TestValidateNamesEveryFault(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(-1, "", nil, "一", a.says("x"), "二", nil, "d", a.says("x"))
	c.Name = ""
	c.Budget = new(agentbus.Micros(-1))
	c.Plan = conversation.RoundRobin{}
	c.Participants[3].Slug, c.Participants[3].Auth, c.Participants[3].MaxCost = "Not a slug", "sometimes", -1
	_, err := ran(t.Context(), c, conversation.Options{})
	if agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"name: must not be blank", "participants[0].name: must not be blank", "participants[0].backend: is required",
		`participants[2].name: "一" and "二" are both "anon" in turn ids; give one of them a slug:`, "participants[2].backend: is required",
		`participants[3].slug: "Not a slug" is not a slug, but "not-a-slug" would be`, `participants[3].auth: "sometimes"`,
		"participants[3].max_cost: ", "max_turns: ", "budget: ", "plan: round-robin names nobody",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in\n%v", want, err)
		}
	}
	if len(a.calls) > 0 {
		t.Error("a faulty conversation was run")
	}
}

// R1: plans go by names, so two of one name cannot be told apart, whatever their
// slugs.
func TestOneNameTwice(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(2, "a", a.says("x"), "a", a.says("y"))
	c.Participants[1].Slug = "b"
	if err := c.Validate(); err == nil || err.Error() != `participants[1].name: "a" takes part twice, and plans go by names; give one of them another name, with the same agent` {
		t.Errorf("got %v", err)
	}
}

// P14, P15, P18: a slug of one's own stands in turn ids, and on the wire when
// the name cannot; a label is what the others see.
func TestSlugAndLabel(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(3, "一", a.says("x"), "二", a.says("y"))
	c.Participants[0].Slug, c.Participants[0].Label = "one", "The First"
	if _, err := ran(t.Context(), c, conversation.Options{Run: "r"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range a.calls {
		got = append(got, string(c.Turn)+" by "+c.Headers[agentbus.HeaderSpeaker])
	}
	if want := "r.t0.one by one, r.t1.anon by anon, r.t2.one by one"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if heard := a.calls[1].Messages[1].Content; heard != "[The First] x" {
		t.Errorf("the other heard %q", heard)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(1, "a", a.says("x"), "b", a.says("y"))
	for name, o := range map[string]conversation.Options{
		"journal and runs": {Journal: newRecorder()},
		"another run":      {Run: "r", Lineage: agentbus.Lineage{Run: "s"}},
		"max_depth":        {MaxDepth: -1},
		"no valid id":      {Run: "a b"},
	} {
		if _, err := ran(t.Context(), c, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
