package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

const askingBus = `agents:
  echo: {kind: builtin, builtin: echo}
  pay: {kind: builtin, builtin: pay, price: {call: 0.5}}
  shop: {kind: conversation, conversation: shop}
keys: [{id: ops, secret_env: OPS, role: admin}]
conversations:
  shop: {participants: [{agent: pay}, {agent: echo}], max_turns: 2}
  nested: {participants: [{agent: echo}, {agent: shop}], max_turns: 2}
  gated: {participants: [{agent: echo, approval: true}, {agent: pay}], max_turns: 1, on_halt: fail}
  both: {participants: [{agent: pay}, {agent: echo, approval: true}], plan: fan-out}
`

var interruptID = regexp.MustCompile(`int_[0-9a-f]{32}`)

// R19, R22: without a server, a run that waits ends with exit 6 and says what to
// type; that works, once.
func TestApproveHere(t *testing.T) {
	t.Parallel()
	path := configure(t, askingBus)
	cli := func(args ...string) (int, string, string) {
		return operate(t, map[string]string{"OPS": opsKey}, append(args, "--config", path)...)
	}
	code, stdout, stderr := cli("run", "nested", "hello")
	id := interruptID.FindString(stderr)
	if code != 6 || id == "" || !strings.Contains(stderr, "agentbus approve "+id+", or agentbus deny "+id+"; then agentbus resume run_") || !strings.Contains(stdout, "[shop] asks: pay wants to be paid") {
		t.Fatalf("%d\n%s\n%s", code, stdout, stderr)
	}
	if code, stdout, _ := cli("inbox"); code != 0 || !strings.Contains(stdout, id+"  policy  shop > pay") || !strings.Contains(stdout, "waits") {
		t.Errorf("%d\n%s", code, stdout)
	}
	if code, stdout, _ := cli("runs"); code != 0 || !strings.Contains(stdout, "  waiting  ") {
		t.Errorf("%d\n%s", code, stdout)
	}
	_, stdout, _ = cli("inbox", "--json")
	var found []agentbus.Interrupt
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || len(found) != 1 || strings.Contains(stdout, `"resume"`) || !strings.Contains(stdout, `[redacted]`) {
		t.Fatalf("%v: %s", err, stdout)
	}
	run := string(found[0].Run)
	if code, _, stderr := cli("resume", run); code != 6 || !strings.Contains(stderr, id) {
		t.Errorf("resumed before the answer: %d %s", code, stderr)
	}
	if code, _, _ := cli("trace", run, "--follow"); code != 6 {
		t.Errorf("followed: %d", code)
	}
	code, stdout, stderr = cli("approve", id, "--resume")
	if code != 0 || !strings.Contains(stdout, "Paid. hello") {
		t.Errorf("%d\n%s\n%s", code, stdout, stderr)
	}
	code, _, stderr = cli("deny", id)
	if code == 0 || !strings.Contains(stderr, "it was granted by local") {
		t.Errorf("decided twice: %d %s", code, stderr)
	}
	if code, stdout, _ := cli("trace", run); code != 0 || !strings.Contains(stdout, "interrupt "+id+"  policy  shop > pay: pay wants to be paid  granted by local") || !strings.Contains(stdout, "$0.500000 charged") && !strings.Contains(stdout, "$0.5 charged") {
		t.Errorf("%d\n%s", code, stdout)
	}
	if code, stdout, _ := cli("inbox"); code != 0 || stdout != "nothing waits\n" {
		t.Errorf("%d\n%s", code, stdout)
	}
	if code, _, stderr := cli("replay", run); code != 0 {
		t.Errorf("replay: %d %s", code, stderr)
	}
}

// R22: denied, the participant is not called, and on_halt says what that does.
func TestDenyHere(t *testing.T) {
	t.Parallel()
	path := configure(t, askingBus)
	cli := func(args ...string) (int, string, string) {
		return operate(t, map[string]string{"OPS": opsKey}, append(args, "--config", path)...)
	}
	_, _, stderr := cli("run", "gated", "hello")
	id := interruptID.FindString(stderr)
	if code, stdout, stderr := cli("deny", id, "--reason", "no", "--resume"); code != 3 || !strings.Contains(stderr, "failed: ") {
		t.Errorf("%d\n%s\n%s", code, stdout, stderr)
	}
	if code, stdout, _ := cli("inbox", "--all"); code != 0 || !strings.Contains(stdout, "denied by local") {
		t.Errorf("%d\n%s", code, stdout)
	}
	if code, _, stderr := cli("run", "both", "hello"); code != 6 || !strings.Contains(stderr, "2 participants ask") {
		t.Errorf("%d %s", code, stderr)
	}
}

// R19, R22: with a server, its workers go on once its admin API was told.
func TestApproveThere(t *testing.T) {
	t.Parallel()
	env := map[string]string{"OPS": opsKey, "AGENTBUS_TOKEN": opsKey}
	path := configure(t, askingBus)
	delete(env, "AGENTBUS_TOKEN")
	_, stdout, stderr := operate(t, env, "run", "shop", "hello", "--detach", "--config", path)
	run := strings.TrimSpace(stdout)
	if run == "" {
		t.Fatal(stderr)
	}
	b := serving(t, path, env, "--quiet")
	code, _, stderr := operate(t, env, "trace", run, "--follow", "--config", path)
	id := interruptID.FindString(stderr)
	if code != 6 || id == "" {
		t.Fatalf("%d %s", code, stderr)
	}
	env["AGENTBUS_TOKEN"], env["AGENTBUS_URL"] = opsKey, b.admin
	if code, stdout, stderr := operate(t, env, "inbox", "--run", run); code != 0 || !strings.Contains(stdout, id) {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	if code, _, _ := operate(t, env, "approve", id, "--resume"); code != 2 {
		t.Errorf("resume there: %d", code)
	}
	if code, stdout, stderr := operate(t, env, "approve", id, "--policy", `{"evidence":"receipt"}`); code != 0 || stdout != "granted "+id+"; run "+run+" goes on\n" {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	if code, _, stderr := operate(t, env, "deny", id); code == 0 || !strings.Contains(stderr, "granted by ops") {
		t.Errorf("%d %s", code, stderr)
	}
	for code = 6; code == 6; {
		code, stdout, _ = operate(t, env, "trace", run, "--follow", "--config", path)
	}
	if code != 0 || !strings.Contains(stdout, "interrupt.resolved") {
		t.Errorf("%d\n%s", code, stdout)
	}
}

// R22: a conversation that serves a call from outside goes on when its caller
// comes again, and nothing else is said.
func TestApproveWhatServesACall(t *testing.T) {
	t.Parallel()
	env := map[string]string{"OPS": opsKey}
	path := configure(t, askingBus)
	b := serving(t, path, env, "--quiet")
	send := func() (int, string) {
		status, _, body, err := post(t.Context(), b.url, opsKey, `{"model":"shop","messages":[{"role":"user","content":"hello"}]}`, turnHeader("run-1", "shop", 0))
		if err != nil {
			t.Fatal(err)
		}
		return status, body
	}
	status, body := send()
	id := interruptID.FindString(body)
	if status != 402 || id == "" || !strings.Contains(body, "run run-1 waits") { // the run that trace and inbox know
		t.Fatalf("%d %s", status, body)
	}
	there := map[string]string{"AGENTBUS_TOKEN": opsKey, "AGENTBUS_URL": b.admin}
	for _, tell := range []struct { // U15: who asks is told from the root, also here
		env  map[string]string
		args []string
		want string
	}{
		{env, []string{"inbox"}, id + "  policy  shop > pay  "},
		{env, []string{"inbox", "--json"}, "\"way\": [\n      \"shop\",\n      \"pay\"\n    ]"},
		{there, []string{"inbox"}, id + "  policy  shop > pay  "},
		{env, []string{"trace", "run-1"}, "interrupt " + id + "  policy  shop > pay: "},
	} {
		if code, stdout, stderr := operate(t, tell.env, append(tell.args, "--config", path)...); code != 0 || !strings.Contains(stdout, tell.want) {
			t.Errorf("%q: %d %s%s", tell.args, code, stdout, stderr)
		}
	}
	if code, _, stderr := operate(t, env, "approve", id, "--resume", "--config", path); code != 2 || !strings.Contains(stderr, "sends that turn again") {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := operate(t, env, "resume", "run-1", "--config", path); code != 2 || !strings.Contains(stderr, "the conversations of run run-1 serve calls") {
		t.Errorf("%d %s", code, stderr)
	}
	want := "granted " + id + "; it serves a call of run run-1, and goes on when its caller sends that turn again; a task of A2A by itself\n"
	if code, stdout, stderr := operate(t, env, "approve", id, "--config", path); code != 0 || stdout != want {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	if status, body = send(); status != 200 || !strings.Contains(body, "Paid. hello") {
		t.Errorf("%d %s", status, body)
	}
}
