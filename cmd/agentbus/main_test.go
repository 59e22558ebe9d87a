package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server/config"
)

func noEnv(string) (string, bool) { return "", false }

// run runs the program with args, without its name, and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) (string, bool)) int {
	return newApp(stdin, stdout, stderr, env).main(ctx, args)
}

// outcome runs the program and returns what it did.
func outcome(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, diag bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &out, &diag, noEnv)
	return code, out.String(), diag.String()
}

func TestInitWritesForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "agentbus.yaml")
	if code, _, stderr := outcome(t.Context(), "init", path); code != 0 {
		t.Fatal(stderr)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("in the directory stand %v, %v, want the file alone", left, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, config.Example()) {
		t.Errorf("the file holds %s, %v", got, err)
	}
}

func TestInitLeavesAFileAloneUnlessForced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agentbus.yaml")
	if err := os.WriteFile(path, []byte("listen: mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := outcome(t.Context(), "init", path); code != 2 {
		t.Errorf("exit %d, want 2", code)
	}
	if got, err := os.ReadFile(path); string(got) != "listen: mine" || err != nil {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if code, _, stderr := outcome(t.Context(), "init", "--force", path); code != 0 {
		t.Error(stderr)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 || info.Size() < 100 {
		t.Errorf("%v, %v, want the new file with mode 0600", info, err)
	}
	if code, _, stderr := outcome(t.Context(), "init", "--force", filepath.Dir(path)); code != 2 || !strings.Contains(stderr, "is a directory") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestConfigSchemaPrintsTheSchema(t *testing.T) {
	t.Parallel()
	_, text, _ := outcome(t.Context(), "config", "schema")
	_, asJSON, _ := outcome(t.Context(), "config", "schema", "--json")
	if text != string(config.Schema()) || asJSON != text {
		t.Errorf("%s\n%s", text, asJSON)
	}
}

func TestConfigExplainAsJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("limits: {max_depth: 5}"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := outcome(t.Context(), "config", "explain", "--json", "--config", path)
	var settings []config.Setting
	if err := json.Unmarshal([]byte(stdout), &settings); code != 0 || err != nil {
		t.Fatal(code, stderr, err)
	}
	for _, s := range settings {
		if s.Key == "limits.max_depth" && (s.Value != "5" || s.Origin != path+":1") {
			t.Errorf("%+v", s)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	platform := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	_, stdout, _ := outcome(t.Context(), "version")
	if !strings.HasPrefix(stdout, "agentbus ") || !strings.Contains(stdout, platform) {
		t.Errorf("version printed %q", stdout)
	}
	_, stdout, _ = outcome(t.Context(), "version", "--json")
	var b build
	if err := json.Unmarshal([]byte(stdout), &b); err != nil || b.Version == "" || b.Protocol != "0" {
		t.Errorf("version --json printed %s: %v", stdout, err)
	}
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	devel := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}
	for _, tt := range []struct {
		info             *debug.BuildInfo
		linked, revision string
		want             string
	}{
		{nil, "", "", "agentbus development, protocol 0 (" + platform + ")"},
		{devel, "", "", "agentbus development, protocol 0 (" + platform + ")"},
		{devel, "2.0.0", "fedcba9876543210", "agentbus 2.0.0, protocol 0 (" + platform + ", revision fedcba987654)"},
		{info, "", "", "agentbus 1.2.3, protocol 0 (" + platform + ", revision 0123456789ab, modified)"},
		{info, "1.2.4", "", "agentbus 1.2.4, protocol 0 (" + platform + ", revision 0123456789ab, modified)"},
	} {
		if got := newBuild(tt.info, build{Version: tt.linked, Revision: tt.revision}).String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// Each kind of error has its exit code, and says what happened, why, and what
// to do.
func TestReport(t *testing.T) {
	t.Parallel()
	depth := &agentbus.Error{
		Code: agentbus.CodeDepthExceeded, Message: "depth 4 reaches the limit of 4",
		Explain: &agentbus.Explain{Rule: "P10", Observed: 4, Limit: 4, Next: "answer from what you have"},
	}
	tests := []struct {
		name string
		err  error
		exit exitCode
		want string
	}{
		{"refused", fmt.Errorf("turn 3: %w", depth), 3, "agentbus: depth 4 reaches the limit of 4\n  why: rule P10\n  next: answer from what you have\n"},
		{"budget", &agentbus.Error{Code: agentbus.CodeBudgetExceeded, Message: "m"}, 4, "agentbus: m\n"},
		{"agent", &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "m", Err: errors.New("connection refused")}, 5, "agentbus: m\n  why: connection refused\n"},
		{"human", &agentbus.Error{Code: agentbus.CodeInputRequired, Message: "m"}, 6, "agentbus: m\n"},
		{"store", &agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "m"}, 1, "agentbus: m\n"},
		{"usage", &agentbus.Error{Code: agentbus.CodeRunNotFound, Message: "m"}, 2, "agentbus: m\n"},
		{"code of a later bus", &agentbus.Error{Code: "melted", Message: "m"}, 1, "agentbus: m\n"},
		{"verb", &failure{exit: exitWaiting, what: "w", why: "y", next: "n"}, 6, "agentbus: w\n  why: y\n  next: n\n"},
		{"other", fs.ErrPermission, 1, "agentbus: permission denied\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			a := &app{stderr: &stderr}
			if got := a.report(t.Context(), tt.err); got != tt.exit {
				t.Errorf("exit %d, want %d", got, tt.exit)
			}
			if diff := cmp.Diff(tt.want, stderr.String()); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

// Every code has the exit code that docs/errors.md tells.
func TestExitsOfTheErrorPage(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/errors.md")
	for code, exit := range exits {
		_, section, _ := strings.Cut(page, "\n### "+string(code)+"\n")
		line, _, _ := strings.Cut(section, "\n")
		if !strings.HasSuffix(line, fmt.Sprintf(" · exit %d", exit)) {
			t.Errorf("%s ends with %d, and the page says %q", code, exit, line)
		}
	}
	if pages := strings.Count(page, "\n### "); pages != len(exits) {
		t.Errorf("%d codes on the page, %d with an exit code", pages, len(exits))
	}
}

func TestReportAsJSON(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	a := &app{globals: globals{JSON: true}, stderr: &stderr}
	a.report(t.Context(), &agentbus.Error{Code: agentbus.CodeOverloaded, Message: "m <b>", Explain: &agentbus.Explain{Next: "n"}})
	want := "{\n  \"error\": {\n    \"exit\": 1,\n    \"code\": \"overloaded\",\n    \"message\": \"m <b>\",\n    \"next\": \"n\"\n  }\n}\n"
	if diff := cmp.Diff(want, stderr.String()); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
}

func TestInterruptedExits130(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for err, want := range map[error]string{
		fmt.Errorf("ask critic: %w", context.Canceled):                     "agentbus: interrupted\n",
		&failure{what: "the run is paused", next: "agentbus resume run_1"}: "agentbus: the run is paused\n  next: agentbus resume run_1\n",
	} {
		var stderr bytes.Buffer
		if got := (&app{stderr: &stderr}).report(ctx, err); got != exitInterrupted || stderr.String() != want {
			t.Errorf("exit %d, %q, want 130, %q", got, stderr.String(), want)
		}
	}
}

// Verbs that read the store ask for no secrets: the shell of an operator has
// none of those that the bus was started with.
func TestReadingNeedsNoSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agentbus.yaml")
	text := "store: {url: 'sqlite:" + filepath.Join(filepath.Dir(file), "bus.db") + "'}\nkeys: [{id: alice, secret_env: NOT_HERE}]\nagents: {echo: {kind: builtin, builtin: echo}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"runs"}, {"inbox"}, {"ledger", "balance"}, {"keys", "list"}, {"agents"}} {
		if code, _, stderr := outcome(t.Context(), append([]string{"--config", file}, verb...)...); code != 0 {
			t.Errorf("%s: exit %d: %s", verb, code, stderr)
		}
	}
	if code, _, stderr := outcome(t.Context(), "--config", file, "config", "check"); code != int(exitUsage) || !strings.Contains(stderr, "NOT_HERE") {
		t.Errorf("config check: exit %d: %s", code, stderr)
	}
}
