package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/archtest"
)

// Documents that lead through the code name files that exist.
func TestDocsNameFilesThatExist(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]int{"docs/life-of-a-call.md": 5, "docs/glossary.md": 5, "CONTRIBUTING.md": 5, "README.md": 3, "docs/promises.md": 5} {
		mentioned, missing, err := archtest.Paths(os.DirFS("../.."), name)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(mentioned) < least {
			t.Errorf("%s names %d files, want at least %d: %q", name, len(mentioned), least, mentioned)
		}
		for _, p := range missing {
			t.Errorf("%s names %s, which does not exist", name, p)
		}
	}
}

// The tree of README has every folder with rooms.
func TestReadmeNamesEveryRoom(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range archtest.Folders() {
		if !strings.Contains(string(text), "── "+folder+"/") {
			t.Errorf("the tree of README.md does not have %s/", folder)
		}
	}
}

// The list of decisions has each of them once, under its title, and says which no
// longer holds.
func TestDecisionsAreListed(t *testing.T) {
	t.Parallel()
	dir := os.DirFS("../../docs/decisions")
	list, err := fs.ReadFile(dir, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(dir, "[0-9]*.md")
	if err != nil || len(names) < 100 {
		t.Fatalf("%d decisions, %v", len(names), err)
	}
	for _, name := range names {
		page, err := fs.ReadFile(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		title, text, _ := strings.Cut(strings.TrimPrefix(string(page), "# "), "\n")
		line := "- [" + title + "](" + name + ")"
		if strings.HasPrefix(strings.TrimSpace(text), "Superseded") {
			line += " (superseded)"
		}
		if strings.Count(string(list), "("+name+")") != 1 || !strings.Contains(string(list), line+"\n") {
			t.Errorf("docs/decisions/README.md does not have, once, the line\n%s", line)
		}
	}
}

// The promises name tests that exist.
func TestPromisesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		tests.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest[A-Z0-9]\w+`).FindAllString(string(text), -1)
	for _, name := range names {
		if !strings.Contains(tests.String(), "\nfunc "+name+"(t ") {
			t.Errorf("%s does not exist", name)
		}
	}
	if len(names) < 20 {
		t.Errorf("%d tests are named", len(names))
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"lineage.go": {}, "gateway/stage.go": {}, "docs/glossary.md": {}, ".golangci.yml": {},
		"docs/page.md": {Data: []byte("It begins in `lineage.go`, goes through gateway/stage.go (see `gateway/`), and [words](glossary.md).\n" +
			"`gone.go`, gateway/gone.go, `nowhere/`, docs/gone.md, store/0001_first.sql.\n" +
			"Not paths: `agentbus.yaml`, text/event-stream, `POST /v1/chat/completions`, e.g. this, https://example.com/a/b.md, 0.5/1.0, and/or.\n")},
	}
	mentioned, missing, err := archtest.Paths(fsys, "docs/page.md")
	if err != nil {
		t.Fatal(err)
	}
	wantMissing := []string{"docs/gone.md", "gateway/gone.go", "gone.go", "nowhere", "store/0001_first.sql"}
	want := []string{"docs/gone.md", "gateway", "gateway/gone.go", "gateway/stage.go", "glossary.md", "gone.go", "lineage.go", "nowhere", "store/0001_first.sql"}
	if diff := cmp.Diff(want, mentioned); diff != "" {
		t.Errorf("mentioned (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMissing, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if _, _, err := archtest.Paths(fsys, "docs/gone.md"); err == nil {
		t.Error("a document that does not exist has no error")
	}
}
