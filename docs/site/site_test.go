package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	linked   = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	linkedMD = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headed   = regexp.MustCompile(` id="([^"]*)"`)
)

// The documents of this repository make a site in which every link leads
// somewhere, to a heading too, in pages as in the text for programs, and no page
// asks anybody else for anything.
func TestSite(t *testing.T) {
	t.Parallel()
	files, err := build(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if path.Ext(name) == ".css" {
			continue
		}
		links := linkedMD
		if path.Ext(name) == ".html" {
			links = linked
			if got := strings.Count(string(data), "<link "); got != 2 || strings.Contains(string(data), "<script") || strings.Contains(string(data), "<img") {
				t.Errorf("%s loads more than its style sheet", name)
			}
		}
		for _, m := range links.FindAllStringSubmatch(string(data), -1) {
			leads(t, files, name, m[1])
		}
	}
	for _, name := range []string{"index.html", "index.md", "protocol.html", "guides/a2a.html", "decisions/dependencies.html", "llms.txt", "style.css"} {
		if len(files[name]) == 0 {
			t.Errorf("no %s", name)
		}
	}
	if strings.Contains(string(style), "url(") || strings.Contains(string(style), "@import") || !strings.Contains(string(style), "prefers-color-scheme: dark") {
		t.Error("the style loads something, or is not for the dark")
	}
}

// leads checks one link of a file of the site.
func leads(t *testing.T, files map[string][]byte, from, to string) {
	t.Helper()
	if strings.Contains(to, "://") || path.Ext(from) == ".md" && !strings.Contains(to, ".md") && !strings.HasPrefix(to, "#") {
		return // away, or code in a text that looks like a link
	}
	file, heading, _ := strings.Cut(to, "#")
	if file == "" {
		file = from
	} else {
		file = path.Join(path.Dir(from), file)
	}
	data, ok := files[file]
	if !ok {
		t.Errorf("%s links to %s, which is not there", from, to)
	}
	if heading == "" || path.Ext(file) != ".html" {
		return
	}
	for _, m := range headed.FindAllStringSubmatch(string(data), -1) {
		if m[1] == heading {
			return
		}
	}
	t.Errorf("%s links to %s, which is no heading", from, to)
}

func small(page string) fstest.MapFS {
	return fstest.MapFS{
		"README.md":     {Data: []byte("# bus\n\nIt is *small*. More.\n\n[words](docs/words.md#two) [code](main.go) [away](https://example.com)\n")},
		"main.go":       {},
		"docs/words.md": {Data: []byte(page)}, "docs/decisions/0001-a.md": {Data: []byte("# 1. A\n\n[up](../words.md)\n")},
	}
}

// What a page says of others is right from wherever it stands.
func TestBuild(t *testing.T) {
	t.Parallel()
	files, err := build(small("# Words\n\nOnly.\n\n## Two\n\n[top](#words) [home](../README.md)\n\n<"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"index.html":            {`<a href="words.html#two">words</a>`, `<a href="` + source + `main.go">code</a>`, `<a href="https://example.com">away</a>`},
		"index.md":              {"[words](words.md#two)", "[code](" + source + "main.go)"},
		"words.html":            {`<a href="#words">top</a>`, `<a href="index.html">home</a>`, `<h2 id="two">Two</h2>`, "&lt;"},
		"decisions/0001-a.html": {`<a href="../words.html">up</a>`, `href="../style.css"`, `aria-current="page">1. A`},
		"llms.txt":              {"# bus\n\n> It is small. More.\n", "- [Words](words.md): Only\n", "## Optional\n\n- [1. A](decisions/0001-a.md): up\n"},
	} {
		for _, w := range want {
			if !strings.Contains(string(files[name]), w) {
				t.Errorf("%s lacks %s:\n%s", name, w, files[name])
			}
		}
	}
}

// What would be dead, or is none of the documents' business, is an error that
// names it.
func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"# Words\n\n[gone](gone.md)\n":                         "docs/words.md links to gone.md",
		"# Words\n\n## Two\n\n[gone](decisions/0001-a.md#x)\n": "#x of docs/decisions/0001-a.md",
		"# Words\n":                       "#two of docs/words.md",
		"no title\n":                      "has no title",
		"# Words\n\n<script>a</script>\n": "HTML",
		"# Words\n\n![x](https://example.com/x.png)\n": "pictures",
	} {
		if _, err := build(small(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := build(fstest.MapFS{}); err == nil {
		t.Error("no documents")
	}
}

// A site is written whole, over what was there.
func TestRun(t *testing.T) {
	t.Parallel()
	root, out := t.TempDir(), t.TempDir()
	if err := os.CopyFS(root, small("# Words\n\n## Two\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out+"/old.html", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(root, out); err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(os.DirFS(out), "*")
	if err != nil || strings.Join(names, " ") != "decisions index.html index.md llms.txt style.css words.html words.md" {
		t.Error(names, err)
	}
}
