// Package deploy_test checks what the bus is deployed with.
package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// instructions returns the instructions of a Dockerfile, each on one line.
func instructions(text string) (lines []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return lines
}

// The image is of known instructions, copies what there is, ends from scratch
// as nobody in particular, and is made with the Go of go.mod.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	known := " ARG FROM WORKDIR COPY RUN USER VOLUME ENV EXPOSE ENTRYPOINT CMD "
	stages, made, last, user := map[string]bool{}, "", "", ""
	for _, line := range instructions(read(t, "docker/Dockerfile")) {
		name, rest, _ := strings.Cut(line, " ")
		if !strings.Contains(known, " "+name+" ") {
			t.Errorf("unknown: %s", line)
		}
		f := strings.Fields(rest)
		switch name {
		case "FROM":
			last, user = f[len(f)-1], ""
			if len(f) > 2 && f[len(f)-2] == "AS" {
				stages[last] = true
			}
		case "ARG":
			if strings.HasPrefix(rest, "TARGET") && strings.Contains(rest, "=") {
				t.Errorf("%s: its default would be taken in place of the platform that the image is for", line)
			}
		case "RUN":
			made += rest
		case "USER":
			user = rest
		case "COPY":
			copied(t, f, stages, made)
		}
	}
	if last != "scratch" || user != "65532:65532" {
		t.Errorf("the last stage is from %q, as %q", last, user)
	}
	if !strings.Contains(made, "CGO_ENABLED=0") || !strings.Contains(made, "./cmd/agentbus") {
		t.Errorf("it runs %s", made)
	}
	_, version, _ := strings.Cut(read(t, "docker/Dockerfile"), "ARG GO_VERSION=")
	version, _, _ = strings.Cut(version, "\n")
	if !strings.Contains(read(t, "../go.mod"), "\ngo "+version) {
		t.Errorf("go.mod wants another Go than %s", version)
	}
}

// copied checks the words of a COPY: what is copied is in the repository and not
// kept from the build, or was made in an earlier stage.
func copied(t *testing.T, words []string, stages map[string]bool, made string) {
	t.Helper()
	from := ""
	for strings.HasPrefix(words[0], "--") {
		if stage, ok := strings.CutPrefix(words[0], "--from="); ok {
			from = stage
		}
		words = words[1:]
	}
	for _, source := range words[:len(words)-1] {
		switch {
		case from != "" && !stages[from]:
			t.Errorf("%s is copied from %s, which is no stage", source, from)
		case strings.HasPrefix(source, "/out/") && !strings.Contains(made, source):
			t.Errorf("%s is copied, and nothing makes it", source)
		case from == "":
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(source))); err != nil {
				t.Error(err)
			}
		}
	}
}

// What is embedded in the binary reaches the build of the image.
func TestDockerignore(t *testing.T) {
	t.Parallel()
	kept := map[string]bool{}
	for line := range strings.Lines(read(t, "../.dockerignore")) {
		if rule, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			kept[path.Ext(rule)] = true
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-deps", "-f", `{{if and .Module .Module.Main}}{{$d := .Dir}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}`, "./cmd/agentbus")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		if n++; !kept[path.Ext(file)] {
			t.Errorf("%s is embedded, and .dockerignore keeps it from the image", file)
		}
	}
	if n == 0 {
		t.Error("nothing is embedded")
	}
}

// systemd takes the unit, and finds little that it may do.
func TestUnit(t *testing.T) {
	t.Parallel()
	text := read(t, "systemd/agentbus.service")
	section, keys := "", map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#':
		case line[0] == '[':
			section = line
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || section == "" {
				t.Errorf("no setting: %q", line)
			}
			keys[section+key] = value
		}
	}
	for key, want := range map[string]string{
		"[Service]ExecStart": "/usr/local/bin/agentbus serve --config /etc/agentbus/agentbus.yaml", "[Service]DynamicUser": "yes",
		"[Service]NoNewPrivileges": "yes", "[Service]CapabilityBoundingSet": "", "[Service]StateDirectory": "agentbus", "[Install]WantedBy": "multi-user.target",
		// A bus whose database is away ends at once, and would be given up after five starts; one with a faulty configuration ends with 2.
		"[Unit]StartLimitIntervalSec": "0", "[Service]Restart": "always", "[Service]RestartPreventExitStatus": "2",
	} {
		if got, ok := keys[key]; !ok || got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil || runtime.GOOS != "linux" {
		return // read as far as can be without systemd
	}
	unit := filepath.Join(t.TempDir(), "agentbus.service") // verify wants programs that exist
	text = strings.Replace(text, "/usr/local/bin/agentbus", "/bin/true", 1)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	checks := [][]string{{"verify", unit}}
	if help, err := exec.CommandContext(t.Context(), analyze, "--help").Output(); err == nil && bytes.Contains(help, []byte("--offline")) { // since systemd 250
		checks = append(checks, []string{"security", "--offline=true", "--threshold=20", unit})
	}
	for _, args := range checks {
		if out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
		}
	}
}
