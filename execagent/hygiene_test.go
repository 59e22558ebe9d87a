package execagent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
	"github.com/agentbus/agentbus/internal/require"
)

func needsLinux(t *testing.T, what string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		require.Missing(t, what)
	}
}

// B3: a program that asks for more memory than it may have gets none, and all its
// processes together have no more than that.
func TestMemory(t *testing.T) {
	t.Parallel()
	needsLinux(t, "a limit of the memory of another process")
	const most = 96 << 20
	// A shell needs several times what it reads: each of the eight stays within its own limit.
	held := `head -c 20000000 /dev/zero | tr '\0' a`
	for name, tt := range map[string]struct {
		script  string
		message string // of the error, in part; "": there is an answer
	}{
		"the limit is set":    {script: fmt.Sprintf(`[ "$(ulimit -d)" = %d ] && [ "$(ulimit -Hd)" = %d ]`, most>>10, most>>10)},
		"it cannot be undone": {script: `ulimit -d unlimited 2>/dev/null && exit 1; sh -c 'ulimit -d' | grep -q 98304`},
		"a little":            {script: `x=$(head -c 1000000 /dev/zero | tr '\0' a); echo ${#x}`},
		"one process":         {script: `x=$(head -c 300000000 /dev/zero | tr '\0' a); echo ${#x}`, message: "the program "},
		"several processes":   {script: `hold() { x=$(` + held + `); sleep 60; }; hold & hold & hold & hold & hold & hold & hold & hold & wait`, message: "the program used more than " + strconv.Itoa(most) + " bytes of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ask(t.Context(), newAgent(t, execagent.Config{MaxMemory: most}, tt.script), "")
			if (err == nil) != (tt.message == "") || err != nil && (agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable || !strings.HasPrefix(agentbus.AsError(err).Message, tt.message)) {
				t.Errorf("%v, want %q", err, tt.message)
			}
		})
	}
}

// B3: when the supervisor of a program is killed with -9, nothing of the program
// is left, also what has detached itself; the turn fails.
func TestKilledSupervisor(t *testing.T) {
	t.Parallel()
	needsLinux(t, "a way to find what is left")
	dir := t.TempDir()
	a := newAgent(t, execagent.Config{Dir: dir}, `sleep 600 & (setsid sh -c 'trap "" TERM HUP; sleep 600; sleep 600' &); echo $PPID; sleep 600`)
	for c, err := range a.Call(t.Context(), &agentbus.Call{Lineage: served}) {
		if c.Text != "" {
			pid, err := strconv.Atoi(strings.TrimSpace(c.Text))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want := "the program ended, and its supervisor did not say how"; agentbus.AsError(err).Message != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if left := below(t, dir); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}

// B2, B3: a program has no descriptor of the bus beside its three, also none that
// the bus was started with, and an environment that is empty does not become
// that of the bus.
func TestNothingIsInherited(t *testing.T) {
	t.Parallel()
	needsLinux(t, "/proc/self/fd")
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()                            //nolint:errcheck // it was read
	inherited, err := syscall.Dup(int(f.Fd())) // as a shell's 9>file: not closed on exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited) //nolint:errcheck // it was read
	a := newAgent(t, execagent.Config{}, `ls /proc/$$/fd`)
	if got, err := ask(t.Context(), a, ""); err != nil || strings.Join(strings.Fields(got.Text), " ") != "0 1 2" {
		t.Errorf("%q descriptors, %v", got.Text, err)
	}
}

// B3: a working directory that somebody is in is not removed, however old it
// looks, and neither is what a link leads to.
func TestDirectoriesInUse(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	long := time.Now().Add(-30 * 24 * time.Hour)
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ours := execagent.Tag("prog")
	for _, old := range []string{"c-" + ours + "-old", "t-" + ours + "-old", "x-c-" + ours + "-before", "c-" + ours + "-locked"} {
		if err := os.MkdirAll(filepath.Join(root, old, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(root, old, "below", "link")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(root, "c-"+ours+"-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "c-"+ours+"-locked", "below"), 0o500); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := os.Chtimes(filepath.Join(root, e.Name()), long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	// It makes its own directory look old, and old ones are removed meanwhile.
	a := newAgent(t, execagent.Config{Dir: root, Conversation: true, DirAge: time.Hour}, `touch -d 2020-01-01 .; echo in; read -r x; ls -d . && echo still`)
	l := served
	l.RootContext = "root"
	said := ""
	for c, err := range a.Call(context.WithValue(t.Context(), payerKey{}, agentbus.Payer("alice")), &agentbus.Call{Lineage: l, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "x\n"}}}) {
		if err != nil {
			t.Fatal(err)
		}
		if said += c.Text; c.Text == "in\n" {
			a.Sweep()
		}
	}
	if !strings.HasSuffix(said, "still\n") {
		t.Errorf("%q", said)
	}
	left, err := filepath.Glob(filepath.Join(root, "?-*"))
	if err != nil || len(left) != 2 { // the conversation's, and the link
		t.Errorf("left: %q, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
}

// B3, B4: what stands in the place of a conversation's directory and is none, a
// link that a program has left, is not entered.
func TestLinkedDirectory(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	a := newAgent(t, execagent.Config{Dir: root, Conversation: true}, `cd ..; d=$(ls -d c-*); mv $d moved; ln -s '`+outside+`' $d; echo moved`)
	if _, err := ask(t.Context(), a, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t.Context(), a, ""); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable || !strings.Contains(err.Error(), "no directory of ours") {
		t.Error(err)
	}
}

// P19, B2: a credential that a program was given is in no answer, however it is
// cut into pieces, and in no word that is quoted of its standard error, also
// where that is cut.
func TestCredentialsAreHidden(t *testing.T) {
	t.Parallel()
	c := execagent.Config{ForwardAuthorizationEnv: "KEY"}
	for name, tt := range map[string]struct{ script, want string }{
		"whole":       {`echo "a $AGENTBUS_TOKEN b $KEY c ${KEY#* }"`, "a [redacted] b [redacted] c [redacted]\n"},
		"in pieces":   {`printf 'a '; printf %s "$AGENTBUS_TOKEN" | while IFS= read -rn1 c; do printf %s "$c"; sleep 0.002; done; echo ' b'`, "a [redacted] b\n"},
		"a beginning": {`printf %.20s "$AGENTBUS_TOKEN"; sleep 0.05; echo; echo ab`, ""},
		"similar":     {`echo abturn; printf ab`, "abturn\nab"},
	} {
		c.Command = []string{"bash", "-c", tt.script}
		got, err := ask(t.Context(), newAgent(t, c, ""), "")
		if err != nil || tt.want != "" && got.Text != tt.want {
			t.Errorf("%s: %q, %v, want %q", name, got.Text, err, tt.want)
		}
	}
	c.Command = nil
	_, err := ask(t.Context(), newAgent(t, c, `n=0; while [ $n -lt 900 ]; do echo "$AGENTBUS_TOKEN$AGENTBUS_TOKEN$AGENTBUS_TOKEN" >&2; n=$((n+1)); done; echo "$KEY" >&2; exit 1`), "")
	if text := fmt.Sprint(err, agentbus.AsError(err).Message); strings.Contains(text, "abturn_") || strings.Contains(text, "origin-secret") || !strings.Contains(text, "[redacted]") || leaves(text) {
		t.Errorf("%v", err)
	}
	c.Output, c.Fields = execagent.OutputJSONL, execagent.ClaudeStreamJSON()
	_, err = ask(t.Context(), newAgent(t, c, `printf '{"type":"result","is_error":true,"result":"%0500d%s"}' 0 "$KEY"`), "")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// leaves reports whether a word is neither hidden nor one of the error's own:
// what is left of a token that was cut.
func leaves(text string) bool {
	for word := range strings.FieldsSeq(text) {
		if len(strings.ReplaceAll(word, "[redacted]", "")) > 20 {
			return true
		}
	}
	return false
}
