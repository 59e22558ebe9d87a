package gateway_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// E27: an agent with a list of tools is offered those of a request that are on it, in
// either dialect and however they are written; what is no call of a tool is as it came.
func TestToolsAreFilteredBeforeTheAgent(t *testing.T) {
	t.Parallel()
	const allowed, denied = `{"type":"function","function":{"name":"search","parameters":{"n":1.0}}}`, `{"type":"function","function":{"name":"rm"}}`
	const written = `{"function":{"name":"search","parameters":{"n":1.0}},"type":"function"}`
	a := newAgent(t, "Writer", nil)
	a.Tools = []string{"writer:search", "writer:web_search", "mcp:docs", "other:rm"}
	free := newAgent(t, "free", nil)
	b := newBus(t, nil, a, free)
	const chat, responses = chatRoute, "/v1/responses"
	for _, tt := range []struct{ path, body, want string }{
		{chat, `"tools":[` + allowed + `,` + denied + `], "tool_choice":"auto"`, `"tools":[` + written + `],"tool_choice":"auto"`},
		{chat, `"tools":[` + denied + `],"tool_choice":"required","parallel_tool_calls":true,"x":1`, `"x":1`},
		{chat, `"tools":[` + allowed + `],"tool_choice":` + denied, `"tools":[` + written + `]`},
		{
			chat, `"tools":[` + allowed + `],"tool_choice":{"type":"function","function":{"name":"search"}}`,
			`"tools":[` + written + `],"tool_choice":{"type":"function","function":{"name":"search"}}`,
		},
		{chat, `"functions":[{"name":"rm"},{"name":"search"}],"function_call":{"name":"rm"}`, `"functions":[{"name":"search"}]`},
		{chat, `"Tools":[` + denied + `],"tools":[` + denied + `]`, ``},
		{chat, `"tools":{"0":` + denied + `}`, ``},
		{chat, `"tools":[{"type":"function","function":{"name":"search","Name":"rm"}},{"type":"function","Function":{"name":"rm"},"name":"search"},{"type":"function","function":{"name":"rm"},"name":"search"}]`, ``},
		{chat, `"tools":[7,` + allowed + `]`, ``},
		{chat, `"tools":[{"type":"function","function":{"name":"search"}},{"type":"custom","custom":{"name":"rm"}}]`, `"tools":[{"function":{"name":"search"},"type":"function"}]`},
		{
			responses, `"tools":[{"type":"function","name":"rm"},{"type":"web_search"},{"type":"code_interpreter"},{"type":"mcp","server_label":"docs"},{"type":"mcp","server_label":"mail"},{"type":"mcp","name":"search"}]`,
			`"tools":[{"type":"web_search"},{"server_label":"docs","type":"mcp"}]`,
		},
		{chat, `"x": [1, 2]`, `"x": [1, 2]`},
	} {
		const head = `{"model":"Writer","messages":[{"role":"user","content":"x"}],"input":"x"`
		join := func(rest string) string {
			if rest == "" {
				return head + "}"
			}
			return head + "," + rest + "}"
		}
		if got := b.send(http.MethodPost, tt.path, join(tt.body), asAlice); got.status != http.StatusOK {
			t.Fatal(tt.body, got)
		}
		if diff := cmp.Diff(join(tt.want), a.next(t).body); diff != "" {
			t.Errorf("%s: %s", tt.body, diff)
		}
	}
	const body = `{"model":"free","messages":[],"tools":[` + denied + `]}` // G9
	b.send(http.MethodPost, chat, body, asAlice)
	if got := free.next(t).body; got != body {
		t.Error(got)
	}
}
