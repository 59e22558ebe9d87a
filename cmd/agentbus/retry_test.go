package main

import (
	"regexp"
	"strings"
	"testing"
)

const flakyTalk = `agents:
  echo: {kind: builtin, builtin: echo, price: {call: 0.01}}
  flaky: {kind: builtin, builtin: flaky, price: {call: 0.01}}
conversations:
  talk: {participants: [{agent: flaky}, {agent: echo}], max_turns: 2, call_policy: {backoff: {base: 1ms}}}
  once: {participants: [{agent: flaky}, {agent: echo}], max_turns: 2, call_policy: {retries: 0}}
`

// R11: a turn that failed in a way that may pass is tried again, is seen to be,
// and is charged once.
func TestRetriesAreShown(t *testing.T) {
	t.Parallel()
	path := configure(t, flakyTalk)
	code, out, stderr := outcome(t.Context(), "run", "talk", "hello", "--config", path)
	if code != 0 || !strings.Contains(out, "[flaky] failed, and is tried again: ×2\n[flaky] hello\n[echo] hello\n") || !strings.Contains(out, " $0.020000 ") {
		t.Fatalf("exit %d: %s%s", code, out, stderr)
	}
	run := regexp.MustCompile(`trace (\S+)`).FindStringSubmatch(out)[1]
	code, out, _ = outcome(t.Context(), "trace", run, "--config", path)
	if code != 0 || !strings.Contains(out, "×2, charged once, payer local") {
		t.Errorf("exit %d: %s", code, out)
	}
	code, out, stderr = outcome(t.Context(), "run", "once", "hello", "--config", path)
	if code != int(exitAgent) || strings.Contains(out, "×") {
		t.Errorf("without retries: exit %d: %s%s", code, out, stderr)
	}
}
