package docs_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/require"
)

// Every page does what it says: its blocks are run in their order, as a reader
// would.
func TestPages(t *testing.T) {
	t.Parallel()
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("it starts a bus and its clients for every page, from a Unix shell")
	}
	for _, page := range documents(t) {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			all := blocks(t, page)
			needs(t, page, all)
			var s *session
			printed := ""
			for _, b := range all {
				if s == nil && (b.lang == "sh" || b.file != "") && b.reason == "" {
					s = begin(t, page)
				}
				printed = perform(t, s, b, printed)
			}
		})
	}
}

// begin starts the session of a page, behind what the page says that there is
// already: a bus that serves, and whatever its own script in testdata makes. The
// README is followed in a clone.
func begin(t *testing.T, page string) *session {
	t.Helper()
	dir := t.TempDir()
	if page == "README.md" {
		clone(t, dir)
	}
	s := newSession(t, dir)
	scripts := []string{strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(page, "docs/"), "/", "-"), ".md") + ".sh"}
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "A bus serves as in") {
		scripts = append(scripts, "serve.sh")
	}
	for _, name := range scripts {
		if script, err := os.ReadFile(filepath.Join("testdata", name)); err == nil {
			if bytes.HasPrefix(script, []byte("openssl ")) {
				require.Tool(t, "openssl")
			}
			s.run(t, string(script))
		}
	}
	return s
}

// clone clones this repository into dir.
func clone(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), require.Tool(t, "git"), "clone", "--quiet", ".", dir)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil { // the source may have come without its repository, or be somebody else's
		require.Missing(t, "a repository that git clones: "+strings.TrimSpace(string(out)))
	}
}

// needs says what a page wants of this machine.
func needs(t *testing.T, page string, all []block) {
	t.Helper()
	at := clients[page]
	for _, b := range all {
		switch {
		case b.reason != "":
		case b.lang == "js":
			require.Tool(t, "node")
			installed(t, at+"node_modules/.package-lock.json")
		case b.lang == "python":
			installed(t, at+".venv/ready")
		case b.rest == "envoy":
			installed(t, ".venv/bin/envoy")
		case b.lang == "nginx":
			if _, err := os.Stat("/usr/sbin/nginx"); err != nil {
				require.Tool(t, "nginx")
			}
		case b.lang == "sh" && strings.Contains(b.text, "curl "):
			require.Tool(t, "curl")
		}
	}
}

// clients are the folders below interop of what pages are run with, where it is
// not interop itself. Their scripts in testdata put them first.
var clients = map[string]string{"docs/guides/adk.md": "adk/", "docs/guides/mastra.md": "mastra/"}

// installed skips a test without a file below interop.
func installed(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat("../interop/" + name); err != nil {
		require.Missing(t, "interop/"+name+" (make clients)")
	}
}

// perform runs or checks one block and returns what it printed; before is what
// the one before it did.
func perform(t *testing.T, s *session, b block, before string) string {
	t.Helper()
	if b.reason != "" {
		return before
	}
	if b.file != "" {
		s.save(t, b)
	}
	switch b.lang {
	case "sh":
		if b.file == "" && !strings.HasPrefix(b.text, "#!") {
			return s.run(t, b.text)
		}
	case "yaml":
		switch b.rest {
		case "kagent":
			checkKagent(t, b)
		case "envoy":
		default:
			checkConfig(t, b)
		}
	case "go":
		compile(t, b)
	case "js", "python", "nginx":
		if b.file == "" {
			t.Errorf("a block of %s names no file, so nothing runs it:\n%s", b.lang, b.text)
		}
	case "json":
		if !isJSON(b.text) {
			t.Errorf("this is no JSON:\n%s", b.text)
		}
	case "usage":
		checkUsage(t, b)
	case "text":
		if b.rest == "output" {
			compare(t, b.text, before)
		}
	}
	return before
}

// isJSON reports whether text is JSON, or lines of it, or members of an object.
func isJSON(text string) bool {
	if json.Valid([]byte(text)) || json.Valid([]byte("{"+text+"}")) {
		return true
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			return false
		}
	}
	return true
}

// compare holds what was printed to what the page shows, where … is anything.
func compare(t *testing.T, want, got string) {
	t.Helper()
	var pattern strings.Builder
	for i, part := range strings.Split(strings.TrimSpace(want), "…") {
		if i > 0 {
			pattern.WriteString(`.*`)
		}
		pattern.WriteString(regexp.QuoteMeta(part))
	}
	if !regexp.MustCompile(`(?s)^` + pattern.String() + `$`).MatchString(strings.TrimSpace(got)) {
		t.Errorf("the page shows\n%s\nand this was printed\n%s", want, got)
	}
}
