package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/require"
)

// What deploy/README.md says is done: a key is made, a release is signed with it, and
// whoever downloads it verifies it; one byte that was changed is found.
func TestSignedRelease(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"openssl", "sha256sum", "bash"} {
		require.Tool(t, tool)
	}
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```sh not run: the tests of deploy/release run it\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(shown) != 2 {
		t.Fatalf("%d blocks of commands", len(shown))
	}
	dir := t.TempDir()
	typed := func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := typed(shown[0][1]); err != nil {
		t.Fatal(out, err)
	}
	r, s := release{dist: dir, key: filepath.Join(dir, "agentbus.pem")}, sums{}
	if err := r.write("agentbus.tar.gz", []byte("an archive"), s); err != nil {
		t.Fatal(err)
	}
	if err := r.finish(s.bytes()); err != nil {
		t.Fatal(err)
	}
	if out, err := typed(shown[1][1]); err != nil || !strings.Contains(out, "agentbus.tar.gz: OK") {
		t.Error(out, err)
	}
	for _, file := range []string{"agentbus.tar.gz", checksums} {
		path := filepath.Join(dir, file)
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := append([]byte{was[0] ^ 1}, was[1:]...)
		if err := r.write(file, changed, nil); err != nil {
			t.Fatal(err)
		}
		if out, err := typed(shown[1][1]); err == nil {
			t.Errorf("a change of %s is not found: %s", file, out)
		}
		if err := r.write(file, was, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A key that cannot sign is told, and nothing of it.
func TestSigningKey(t *testing.T) {
	t.Parallel()
	require.Tool(t, "openssl")
	dir := t.TempDir()
	other := filepath.Join(dir, "ec.pem")
	if out, err := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", other).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	none, broken := filepath.Join(dir, "none.pem"), filepath.Join(dir, "broken.pem")
	for path, text := range map[string]string{none: "canary", broken: "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{other: "another kind", none: "no key in PEM", broken: "no private key", filepath.Join(dir, "nowhere"): "no such file"} {
		if _, err := signed([]byte("x"), path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
