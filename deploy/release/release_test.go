package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/require"
)

var moment = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)

// self is a program with a list of its modules: this test.
func self(t *testing.T) []byte {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The list of what is inside a program is the linker's own, each module with
// its version and sum, under a serial number that is that program's.
func TestBill(t *testing.T) {
	t.Parallel()
	r := release{version: "1.2.3", revision: "abc", made: moment}
	program := self(t)
	data, err := r.bill(target{"linux", "amd64"}, program)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.bill(target{"linux", "amd64"}, program)
	if err != nil || !bytes.Equal(data, again) {
		t.Error("made twice, it differs", err)
	}
	var b bill
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	info, _ := debug.ReadBuildInfo()
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	var got []string
	for _, c := range b.Components {
		got = append(got, c.PURL)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, b.Dependencies[0].DependsOn); diff != "" {
		t.Error(diff)
	}
	if b.Metadata.Component.Hashes[0].Content != sum(program) || b.Metadata.Timestamp != "2026-01-02T03:04:06Z" || b.Metadata.Component.Version != "1.2.3" {
		t.Errorf("%+v", b.Metadata)
	}
}

// Every module that is inside has its licence in the archive.
func TestNotices(t *testing.T) {
	t.Parallel()
	r := release{root: "../.."}
	text, err := r.notices(t.Context(), self(t))
	if err != nil {
		t.Fatal(err)
	}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if !strings.Contains(string(text), "==== "+m.Path+" "+m.Version+": ") {
			t.Errorf("no licence of %s", m.Path)
		}
	}
	if !strings.Contains(string(text), "The Go Authors") {
		t.Error("no licence of Go")
	}
	if err := appendLicences(&bytes.Buffer{}, "nobody", t.TempDir()); err == nil {
		t.Error("a module without a licence has no error")
	}
}

// An archive holds what it was given, belongs to nobody, has the time of the
// commit, and is the same whenever it is made.
func TestArchives(t *testing.T) {
	t.Parallel()
	entries := []entry{{"agentbus", 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("free")}}
	for name, tt := range map[string]struct {
		pack func([]entry, time.Time) ([]byte, error)
		read func([]byte) ([]entry, error)
	}{
		"tar.gz": {tarball, untar},
		"zip":    {zipped, unzip},
	} {
		first, err := tt.pack(entries, moment)
		if err != nil {
			t.Fatal(name, err)
		}
		again, err := tt.pack(entries, moment)
		if err != nil || !bytes.Equal(first, again) {
			t.Error(name, "made twice, it differs", err)
		}
		got, err := tt.read(first)
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(entries, got, cmp.AllowUnexported(entry{})); diff != "" {
			t.Error(name, diff)
		}
	}
}

func untar(b []byte) (entries []entry, err error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if !z.ModTime.IsZero() {
		return nil, errors.New("the time of packing is in it")
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		if !h.ModTime.Equal(moment) || h.Uid != 0 || h.Uname != "" {
			return nil, errors.New("whose is it, and of when: " + h.Name)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{h.Name, h.FileInfo().Mode(), data})
	}
}

func unzip(b []byte) (entries []entry, err error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	for _, f := range z.File {
		if !f.Modified.Equal(moment) {
			return nil, errors.New("of when is " + f.Name)
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		entries = append(entries, entry{f.Name, f.Mode(), data})
	}
	return entries, nil
}

// The formula names each archive with its own checksum, and is Ruby where there
// is one to ask.
func TestFormula(t *testing.T) {
	t.Parallel()
	files := map[target]archived{}
	for _, tt := range targets {
		files[tt] = archived{name: "agentbus_1.2.3_" + tt.os + "_" + tt.arch + ".tar.gz", sum: sum([]byte(tt.String()))}
	}
	text, err := formula("1.2.3", files)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range targets {
		line := "/v1.2.3/" + files[tt].name + "\"\n      sha256 \"" + files[tt].sum + "\"\n"
		if got := strings.Contains(string(text), line); got != (tt.os != "windows") {
			t.Errorf("%v: %v in\n%s", tt, got, text)
		}
	}
	opened, closed := 0, 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, " do") || strings.HasPrefix(line, "class ") || strings.HasPrefix(line, "def ") {
			opened++
		}
		if line == "end" {
			closed++
		}
	}
	if opened != closed || opened != 11 {
		t.Errorf("%d blocks are begun, %d ended", opened, closed)
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		cmd := exec.CommandContext(t.Context(), ruby, "-c")
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// Targets are those there are, and a version is one word.
func TestArguments(t *testing.T) {
	t.Parallel()
	if all, err := chosen(""); err != nil || len(all) != 6 {
		t.Error(all, err)
	}
	if some, err := chosen("linux/arm64,windows/amd64"); err != nil || len(some) != 2 || some[1].program() != "agentbus.exe" {
		t.Error(some, err)
	}
	if _, err := chosen("plan9/386"); err == nil {
		t.Error("plan9 is no target")
	}
	require.Tool(t, "git")
	if _, err := output(t.Context(), "../..", "git", "rev-parse", "HEAD"); err != nil {
		require.Missing(t, "a repository that git reads: "+err.Error())
	}
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "1 2": "", "a/b": ""} {
		r := release{root: "../.."}
		if err := r.identify(t.Context(), version); (err == nil) != (want != "") || want != "" && r.version != want {
			t.Errorf("%q: %q, %v", version, r.version, err)
		}
	}
}
