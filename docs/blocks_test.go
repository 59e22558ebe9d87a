// Package docs_test runs what the documents show. Each fenced block says what
// it is:
//
//	sh        a shell runs it, in the directory of its page, behind the blocks before it; what begins
//	          with agentbus serve is left running until the page ends
//	yaml      the loader of the configuration takes it; a part of a file is completed first;
//	          "yaml kagent" is an object of kagent, which names the bus as its chart does; "yaml envoy" is
//	          a file of Envoy, for a shell to run
//	go        it compiles, in a function if it is no file
//	js python its file is written, for a shell to run
//	json      it is JSON, or lines of it, or members of an object
//	usage     lines that begin with a command of agentbus: there are such verbs and flags
//	text      it is shown; "text output" is what the block before it prints, where … is anything
//
// A block of any language with a comment such as "# NAME.EXT" on its first or
// second line is a file, which is written. "not run: REASON" behind the
// language leaves a block out.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// A block is a fenced block of a document.
type block struct {
	page   string // its file, from the root
	lang   string
	rest   string // of the info string
	file   string // the name of the file that it is; "" when it is none
	text   string
	reason string // why it is not run
}

var languages = []string{"sh", "yaml", "go", "js", "python", "json", "usage", "text", "nginx"}

// fileName matches the comment that names a file.
var fileName = regexp.MustCompile(`^(?:#|//) ([\w-]+(?:\.[\w-]+)+)$`)

// documents returns the files whose blocks are run: all but the decisions, the
// history and what others write.
func documents(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "decisions" {
			return fs.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			names = append(names, filepath.ToSlash(filepath.Join("docs", path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(names, "README.md", "examples/README.md", "deploy/README.md")
}

// blocks returns the blocks of a document.
func blocks(t *testing.T, page string) (all []block) {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	err = ast.Walk(goldmark.DefaultParser().Parse(text.NewReader(src)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		f, ok := n.(*ast.FencedCodeBlock)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		b := block{page: page}
		if f.Info != nil {
			b.lang, b.rest, _ = strings.Cut(string(f.Info.Segment.Value(src)), " ")
		}
		b.reason, _ = strings.CutPrefix(b.rest, "not run: ")
		if b.reason == b.rest {
			b.reason = ""
		}
		for i := range f.Lines().Len() {
			segment := f.Lines().At(i)
			line := string(segment.Value(src))
			if m := fileName.FindStringSubmatch(strings.TrimSpace(line)); m != nil && i < 2 {
				b.file = m[1]
			}
			b.text += line
		}
		all = append(all, b)
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every block says what it is, and few are not run.
func TestBlocks(t *testing.T) {
	t.Parallel()
	left, count := 0, map[string]int{}
	for _, page := range documents(t) {
		for _, b := range blocks(t, page) {
			count[b.lang]++
			switch {
			case !slices.Contains(languages, b.lang):
				t.Errorf("%s: a block says %q; blocks are of %v:\n%s", page, b.lang, languages, b.text)
			case b.reason != "":
				left++
			case b.rest != "" && b.lang != "go" && !slices.Contains([]string{"text output", "yaml agent", "yaml kagent", "yaml envoy"}, b.lang+" "+b.rest):
				t.Errorf("%s: a block says %s %s", page, b.lang, b.rest)
			}
		}
	}
	if left > 4 { // the one of the README is run by .ci/run, two by deploy/release; one needs a cluster
		t.Errorf("%d blocks are not run", left)
	}
	for _, lang := range []string{"sh", "yaml", "go", "js", "python", "json", "usage"} {
		if count[lang] == 0 {
			t.Errorf("there is no block of %s", lang)
		}
	}
}
