package agentbus_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// P19, R22: no JSON of what is asked or decided holds what is for the backend
// alone, wherever it stands.
func TestAskShowsNoSecret(t *testing.T) {
	t.Parallel()
	ask := agentbus.Ask{
		Kind: agentbus.AskPolicy, Title: "pay", Policy: json.RawMessage(`{"kind":"payment_required","state":"s3cret","n":12345678901234567890,"more":[{"state":{"deep":"s3cret"}}]}`),
		Resume: json.RawMessage(`"s3cret"`),
	}
	for _, v := range []any{
		ask, &ask, &agentbus.Error{Code: agentbus.CodePaymentRequired, Ask: &ask},
		agentbus.Turn{Error: &agentbus.Error{Ask: &ask}, Interrupt: &agentbus.Interrupt{Ask: ask}},
		agentbus.Interrupt{Ask: ask, Resolution: &agentbus.Resolution{Policy: ask.Policy, Resume: ask.Resume}},
		agentbus.Halt{Wait: &agentbus.Wait{Asked: []agentbus.Turn{{Interrupt: &agentbus.Interrupt{Ask: ask}}}}},
	} {
		raw, err := json.Marshal(v)
		if err != nil || strings.Contains(string(raw), "s3cret") {
			t.Errorf("%T: %s, %v", v, raw, err)
		}
	}
	raw, _ := json.Marshal(ask)
	if want := `{"kind":"policy","title":"pay","policy":{"kind":"payment_required","more":[{"state":"[redacted]"}],"n":12345678901234567890,"state":"[redacted]"}}`; string(raw) != want {
		t.Errorf("got %s", raw)
	}
	if raw, err := json.Marshal(agentbus.Ask{Kind: agentbus.AskPolicy, Policy: json.RawMessage(`{"state":`)}); err != nil || string(raw) != `{"kind":"policy"}` {
		t.Errorf("no JSON: %s, %v", raw, err)
	}
	if ask.PolicyState() != "s3cret" || string(ask.Resume) != `"s3cret"` {
		t.Errorf("it was changed: %+v", ask)
	}
}

// C30: the backend that asked is told the state of its part, the decision and
// the time, whatever was given for them, and gets its Resume back.
func TestInterruptAnswer(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 14, 15, 9, 26, 0, time.FixedZone("", 3600))
	for name, c := range map[string]struct{ part, given, want string }{
		"none":       {"", `{"evidence":1}`, `{"evidence":1}`},
		"evidence":   {`{"state":"s"}`, `{"evidence":1,"outcome":"granted","in_reply_to_state":"mine"}`, `{"evidence":1,"in_reply_to_state":"s","outcome":"denied","resolved_at":"2026-03-14T14:09:26Z"}`},
		"nothing":    {`[{"kind":"x"},{"state":"s"}]`, ``, `{"in_reply_to_state":"s","outcome":"denied","resolved_at":"2026-03-14T14:09:26Z"}`},
		"null":       {`{"state":"s"}`, `null`, `{"in_reply_to_state":"s","outcome":"denied","resolved_at":"2026-03-14T14:09:26Z"}`},
		"no object":  {`{"state":"s"}`, `[1]`, `{"in_reply_to_state":"s","outcome":"denied","resolved_at":"2026-03-14T14:09:26Z"}`},
		"no state":   {`"x"`, ``, `{"in_reply_to_state":"","outcome":"denied","resolved_at":"2026-03-14T14:09:26Z"}`},
		"odd states": {`[{"state":""},{"state":"t"}]`, ``, `{"in_reply_to_state":"t","outcome":"denied","resolved_at":"2026-03-14T14:09:26Z"}`},
	} {
		i := agentbus.Interrupt{Ask: agentbus.Ask{Policy: json.RawMessage(c.part), Resume: json.RawMessage(`7`)}}
		if i.Answer() != nil || !i.Open() {
			t.Errorf("%s: it is answered", name)
		}
		i.Resolution = &agentbus.Resolution{Decision: agentbus.DecisionDenied, Policy: json.RawMessage(c.given), At: at}
		got := i.Answer()
		if diff := cmp.Diff(c.want, string(got.Policy)); diff != "" || string(got.Resume) != "7" || string(i.Resolution.Policy) != c.given {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	if a, b := agentbus.InterruptOf("e", "t", 1), agentbus.InterruptOf("e", "t", 2); a == b || len(a) != 36 || a != agentbus.InterruptOf("e", "t", 1) {
		t.Errorf("%s, %s", a, b)
	}
}
