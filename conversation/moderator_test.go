package conversation_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

var chaired = conversation.Moderator{Decides: "chair", Others: []agentbus.Speaker{"critic", "Dr. Zoë", "editor"}}

// said makes turns of speaker, text, speaker, ….
func said(words ...string) (turns []agentbus.Turn) {
	for i := 0; i < len(words); i += 2 {
		turns = append(turns, agentbus.Turn{Speaker: agentbus.Speaker(words[i]), State: agentbus.TurnDone, Reply: agentbus.Reply{Text: words[i+1]}})
	}
	return turns
}

// R3: what a moderator's reply names, in each of the forms, and who speaks when
// it names nobody.
func TestModeratorNames(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]agentbus.Speaker{
		"Good point.\nnext: critic":                    "critic",
		"Good point.\n\n**Next: Critic**\n\n":          "critic",
		"NEXT : @dr-zoe.":                              "Dr. Zoë",
		"I mean next: critic, of course.\nnext: x":     "Dr. Zoë", // nobody: the one after the critic
		`{"next": "critic"}`:                           "critic",
		"So be it.\n{\"next\": \"Dr. Zoë\"}":           "Dr. Zoë",
		"{\n \"next\": \"critic\"\n}":                  "critic",
		"```json\n{\"next\": \"critic\"}\n```":         "critic", // one block of code that is all of it
		" ```\r\nSo.\r\nnext: critic\r\n```\n":         "critic",
		"So.\n```json\n{\"next\": \"critic\"}\n```":    "Dr. Zoë",
		"```\n{\"next\": \"critic\"}\n```\nSo.":        "Dr. Zoë",
		"```\na\n```\n```\n{\"next\":\"critic\"}\n```": "Dr. Zoë",
		"```json":                 "Dr. Zoë",
		"critic":                  "critic",
		"  Dr. Zoë \n":            "Dr. Zoë",
		"next: \"Editor\"":        "editor",
		"":                        "Dr. Zoë",
		"next:":                   "Dr. Zoë",
		"next: chair":             "Dr. Zoë",
		"{\"next\": 7}":           "Dr. Zoë",
		"I am not done":           "Dr. Zoë",
		"next: critic\nBut wait.": "Dr. Zoë",
		"done":                    "",
		"That was it.\nDone.":     "",
		"next: done":              "",
		`{"next": "done"}`:        "",
	} {
		step, err := chaired.Next(said("chair", "critic", "critic", "x", "chair", reply))
		if err != nil || step.Speaker != want || step.Done != (want == "") {
			t.Errorf("%q: %+v, %v, want %q", reply, step, err, want)
		}
	}
	if step, err := chaired.Next(said("chair", "who?")); err != nil || step.Speaker != "critic" {
		t.Errorf("at first: %+v, %v", step, err)
	}
	if step, err := chaired.Next(said("chair", "who?", "editor", "x", "chair", "who?")); err != nil || step.Speaker != "critic" {
		t.Errorf("after the last: %+v, %v", step, err)
	}
	if step, err := (conversation.Moderator{Decides: "chair"}).Next(nil); err != nil || !step.Done {
		t.Errorf("with nobody: %+v, %v", step, err)
	}
}

// R3: the moderator opens, speaks after everybody, and ends it.
func TestModeratedConversation(t *testing.T) {
	t.Parallel()
	var a agents
	c := talk(20, "chair", a.says("next: b", "next: a", "who knows", "That is all.\ndone"), "a", a.says("A"), "b", a.says("B"))
	c.Plan = conversation.Moderator{Decides: "chair", Others: []agentbus.Speaker{"a", "b"}}
	r, err := ran(t.Context(), c, conversation.Options{Run: "r", Seed: "s"})
	var who []string
	for i := range r.Turns {
		who = append(who, string(r.Turns[i].Speaker))
	}
	want := "chair b chair a chair b chair"
	if got := strings.Join(who, " "); err != nil || got != want || r.Halt.String() != "done: chair said done" {
		t.Errorf("%s, %v, %s", got, err, r.Halt)
	}
	rules := `You moderate. End each of your replies with a line of its own: "next: NAME" to say who speaks next, one of a, b; or "done" when it is over.`
	messages := []agentbus.Message{{Role: agentbus.RoleUser, Content: "s"}, {Role: agentbus.RoleUser, Content: rules}}
	if diff := cmp.Diff(messages, a.calls[0].Messages); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if m := a.calls[1].Messages; len(m) != 2 || m[1].Content != "[chair] next: b" {
		t.Errorf("b was told %+v", m)
	}
}

// R3: whatever a moderator says, the plan is pure and names a participant or is
// done.
func FuzzModerator(f *testing.F) {
	for _, seed := range []string{"next: critic", "{\"next\": \"critic\"}", "done", "next:\xff", "\n\n:\n", "{"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		turns := said("chair", reply)
		first, err := chaired.Next(turns)
		if again, _ := chaired.Next(turns); err != nil || !cmp.Equal(first, again) {
			t.Errorf("%+v, then %+v, %v", first, again, err)
		}
		if !first.Done && !slices.Contains(chaired.Others, first.Speaker) {
			t.Errorf("%+v", first)
		}
	})
}
