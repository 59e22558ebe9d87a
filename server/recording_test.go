package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

// U11: every call is recorded that goes through the gateway, with its answer, whatever
// its agent is and whoever makes it, from the reload on that asks for it.
func TestCallsOfAllKindsAreRecorded(t *testing.T) {
	t.Parallel()
	yaml := onlyAlice + `agents:
  echo: {kind: builtin, builtin: echo}
  coder: {kind: exec, command: [cat], dir: '` + t.TempDir() + `'}
  near: {kind: a2a, url: %q, api_key_env: ALICE}
  panel: {kind: conversation, conversation: talk}
conversations: {talk: {participants: [{agent: echo}, {agent: coder}, {agent: near}], max_turns: 3}}
`
	there := newA2AEcho(t)
	b := serveFile(t, fmt.Sprintf(yaml, there))
	must := func(status int, body string) {
		t.Helper()
		if status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
	}
	must(b.post("alice-secret", "echo", "before"))
	b.write(fmt.Sprintf(yaml, there) + "recording: {requests: true}\n")
	if err := b.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(b.post("alice-secret", "panel", "driven"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/a2a/echo",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer alice-secret"}, "A2a-Version": {"1.0"}, "Content-Type": {"application/json"}}
	must(b.do(r))
	runs, err := b.Store().RunSummaries(t.Context(), agentbus.RunFilter{}, 10, "")
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]int{}
	for _, run := range runs {
		calls, err := b.Store().Calls(t.Context(), run.Run)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calls {
			if c.State == agentbus.CallPassed { // the message to the face, which calls for it
				continue
			}
			rec, found, err := b.Store().Recording(t.Context(), c.ID)
			if err != nil || found != (c.Run != "before") || found && (!strings.Contains(rec.Body, "hi") || rec.In == nil || rec.Out == nil || rec.Answer == nil || !strings.Contains(rec.Answer.Body, "hi")) {
				t.Errorf("of a call of %s: %+v, %v", c.Agent, rec, err)
			}
			if found {
				recorded[c.Agent]++
			}
		}
	}
	want := map[string]int{"panel": 1, "echo": 2, "coder": 1, "near": 1} // one of echo by its A2A face
	if diff := cmp.Diff(want, recorded); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// newA2AEcho starts a bus with an agent that repeats what it is told, and returns
// where that is reached over A2A.
func newA2AEcho(t *testing.T) string {
	t.Helper()
	b := serveFile(t, onlyAlice+oneEcho)
	return b.url + "/a2a/echo"
}
