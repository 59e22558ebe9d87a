package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// gauge notes how many turns are being served while one is.
const gauge = `
gauge() { mkdir -p "$log/in"; : >"$log/in/$1"; ls "$log/in" | wc -l >>"$log/most"; sleep 0.01; rm "$log/in/$1"; }
`

// B4, G8: of 200 calls at once, over HTTP, over 8 conversations of two payers that
// give them the same names, each meets the worker of its conversation, the
// session of it, or its directory; no two payers ever share one, and no more are
// served at once than may be.
func TestConversationsThroughTheGateway(t *testing.T) {
	t.Parallel()
	const turns, roots, most = 200, 4, 3
	limits := fmt.Sprintf(", concurrency: %d, queue: %d, queue_timeout: 5m, timeout: 5m, affinity: conversation", most, turns)
	for name, script := range map[string]string{
		// It says who it is, and how many turns it has served.
		"worker":  limits + ", mode: worker, workers: 8" + gauge + `n=0; while read -r line; do n=$((n+1)); gauge $$; echo "{\"text\":\"$$ $n\",\"done\":true}"; done`,
		"session": limits + `, session: {first: [begin, "{session}"], next: [resume, "{session}"]}` + gauge + `gauge $$; cat >/dev/null; n=$(($(cat n 2>/dev/null)+1)); echo $n >n; [ $1 = begin ] && [ $n -gt 1 ] && exit 1; echo "$2 $n"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, env := scripted(t, "", map[string]string{name: script + "\n"})
			b := serving(t, path, env)
			payers := []string{"alice", "bob"}
			var mu sync.Mutex
			got := map[string][]string{} // conversation → answers
			var all sync.WaitGroup
			for i := range turns {
				payer, root := payers[i%2], fmt.Sprintf("root-%d", i/2%roots)
				all.Go(func() {
					a := askAgent(t.Context(), t, b.url, payer+"-secret", name, "hello", http.Header{agentbus.RootContextIDHeader: {root}})
					mu.Lock()
					defer mu.Unlock()
					if a.status != 200 {
						t.Errorf("%d: %s", a.status, a.message)
					}
					got[payer+" "+root] = append(got[payer+" "+root], strings.TrimSpace(a.text))
				})
			}
			all.Wait()
			eachItsOwn(t, got, 2*roots, turns/2/roots)
			for _, line := range linesOf(t, filepath.Join(scriptsOf(t, path), "most")) {
				if n, err := strconv.Atoi(strings.TrimSpace(line)); err != nil || n > most {
					t.Errorf("%s at once, %v", line, err)
				}
			}
		})
	}
}

// eachItsOwn checks that every conversation met one, which met no other, for all
// of its turns.
func eachItsOwn(t *testing.T, got map[string][]string, conversations, turns int) {
	t.Helper()
	owner := map[string]string{} // who served → conversation
	for of, answers := range got {
		seen := map[string]bool{}
		for _, answer := range answers {
			who, n, _ := strings.Cut(answer, " ")
			if other, taken := owner[who]; taken && other != of {
				t.Errorf("%s serves %s and %s", who, of, other)
			}
			if owner[who] = of; seen[n] {
				t.Errorf("%s: %q twice", of, answer)
			}
			seen[n] = true
		}
		if len(seen) != turns || !seen["1"] || !seen[strconv.Itoa(turns)] {
			t.Errorf("%s: %q", of, answers)
		}
	}
	if len(owner) != conversations || len(got) != conversations {
		t.Errorf("%d serve %d conversations", len(owner), len(got))
	}
}

// B1: tools, thoughts, usage and cost that a program reports reach its caller in
// the OpenAI dialect, streamed and whole, its bill, and the journal of a
// conversation.
func TestReportsOfPrograms(t *testing.T) {
	t.Parallel()
	path, env := scripted(t, "", map[string]string{
		"claude": ", output: claude-stream-json, usage_cost: true\ncat >/dev/null; cat \"$log/claude.jsonl\"\n",
		"codex":  ", output: codex-json\ncat >/dev/null; cat \"$log/codex.jsonl\"\n",
	})
	dir := scriptsOf(t, path)
	save(t, filepath.Join(dir, "claude.jsonl"), `{"type":"system","subtype":"init","session_id":"s","model":"claude-x"}
{"type":"assistant","message":{"model":"claude-x","content":[{"type":"thinking","thinking":"hm "},{"type":"text","text":"I look."},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":null}
{"type":"user","message":{"content":[{"tool_use_id":"t","type":"tool_result","content":"x","is_error":true}]},"parent_tool_use_id":null}
{"type":"assistant","message":{"model":"claude-x","content":[{"type":"text","text":"One file."}]},"parent_tool_use_id":null}
{"type":"result","subtype":"success","is_error":false,"result":"One file.","total_cost_usd":0.0125,"usage":{"input_tokens":10,"cache_read_input_tokens":300,"output_tokens":40}}
`)
	save(t, filepath.Join(dir, "codex.jsonl"), `{"type":"thread.started","thread_id":"0199"}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"One file."}}
{"type":"turn.completed","usage":{"input_tokens":24763,"cached_input_tokens":24448,"output_tokens":122}}
`)
	rewrite(t, path, "agents:\n", "conversations: {both: {participants: [{agent: claude}, {agent: codex}], max_turns: 2}}\nagents:\n")
	b := serving(t, path, env)
	for _, tt := range []struct {
		agent, stream string
		want          []string
		cost          agentbus.Micros
	}{
		{"claude", "false", []string{`"content":"I look.\n\nOne file."`, `"reasoning_content":"hm [tool Bash {\"command\":\"ls\"}]\n"`, `"prompt_tokens":310`, `"completion_tokens":40`, `"cached_tokens":300`}, 12_500},
		{"claude", "true", []string{`"content":"I look."`, `[tool Bash {\"command\":\"ls\"}]`, `"content":"\n\nOne file."`, `"prompt_tokens":310`, "data: [DONE]"}, 12_500},
		{"codex", "false", []string{`"content":"One file."`, `[tool command_execution \"ls\"]`, `"prompt_tokens":24763`, `"cached_tokens":24448`}, 10_000},
		{"codex", "true", []string{`"content":"One file."`, `[tool command_execution \"ls\"]`, `"completion_tokens":122`, "data: [DONE]"}, 10_000},
	} {
		status, h, body, err := post(t.Context(), b.url, "alice-secret", `{"model":"`+tt.agent+`","stream":`+tt.stream+`,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"x"}]}`, nil)
		if err != nil || status != 200 {
			t.Fatalf("%s: %d, %v: %s", tt.agent, status, err, body)
		}
		for _, want := range tt.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s, stream %s: %s, want %s in it", tt.agent, tt.stream, body, want)
			}
		}
		calls, err := opened(t, path, env).Calls(t.Context(), agentbus.RunID(h.Get("X-Tangle-Runid")))
		if err != nil || len(calls) != 1 || calls[0].Cost != tt.cost || calls[0].Usage.InputTokens == 0 {
			t.Errorf("%s: %+v, %v", tt.agent, calls, err)
		}
	}
	code, out, stderr := program(t, dir, []string{"ALICE=alice-secret", "BOB=bob-secret", "AGENTBUS_TOKEN=alice-secret"}, "run", "both", "x", "--config", path, "--json")
	_, run, _ := strings.Cut(out, `"run": "`)
	run, _, _ = strings.Cut(run, `"`)
	turns := turnsOf(t, opened(t, path, env), agentbus.RunID(run))
	if code != 0 || len(turns) != 2 {
		t.Fatalf("%d, %s, %s, %+v", code, out, stderr, turns)
	}
	for i, want := range []string{`[tool Bash {"command":"ls"}]`, `[tool command_execution "ls"]`} {
		if r := turns[i].Reply; !strings.Contains(r.Reasoning, want) || r.Usage.OutputTokens == 0 {
			t.Errorf("in the journal: %+v", r)
		}
	}
}

// B4, G7: a worker that is called again, over another agent, from the turn that it
// serves says so at once, with what to do about it, and goes on with its turn.
func TestCycleOverAnotherAgent(t *testing.T) {
	t.Parallel()
	const worker = ", mode: worker, affinity: conversation"
	script := func(next string) string {
		return `
while read -r line; do
  eval "$(printf '%s' "$line" | sed 's/.*"env":{//; s/}.*//' | tr ',' '\n' | sed -n 's/^"\(AGENTBUS_[A-Z_]*\)":\("[^"]*"\)$/export \1=\2/p')"
  got=$(agentbus call ` + next + ` "round $$" 2>&1 | tr -d '"\\' | tr '\n' ' ')
  printf '{"text":"%s"}\n{"done":true}\n' "$got"
done
`
	}
	path, env := scripted(t, "limits: {max_depth: 16}\nchain: {max_hops: 16}\n", map[string]string{
		"one": worker + script("two"), "two": "\nagentbus call three over 2>&1\n", "three": worker + script("one"),
	})
	b := serving(t, path, env)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the timeout of the agents is ten
	defer cancel()
	status, _, body, err := post(ctx, b.url, "alice-secret", `{"model":"one","messages":[{"role":"user","content":"go"}]}`, nil)
	if err != nil || status != 200 || !strings.Contains(body, "each would wait for the other") || !strings.Contains(body, "conversation of its own") {
		t.Errorf("%d %v %s", status, err, body)
	}
}
