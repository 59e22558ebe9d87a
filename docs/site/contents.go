package main

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A chapter is a part of the contents.
type chapter struct {
	title string
	pages []string // their files in the repository, in the order they are read
}

// contents are the pages that are listed, in order. Every other document of
// docs/ has a page too, below More or Decisions.
var contents = []chapter{
	{"Begin", []string{"README.md", "docs/start.md", "docs/concepts.md", "examples/README.md"}},
	{"Guides", []string{
		"docs/guides/openai.md", "docs/guides/vercel-ai.md", "docs/guides/langgraph.md", "docs/guides/adk.md", "docs/guides/mastra.md",
		"docs/guides/kagent.md", "docs/guides/programs.md", "docs/guides/a2a.md", "docs/guides/addresses.md", "docs/guides/proxies.md",
		"docs/guides/scaling.md",
	}},
	{"How it works", []string{
		"docs/protocol.md", "docs/life-of-a-call.md", "docs/conversations.md", "docs/runs.md", "docs/budgets.md", "docs/chains.md",
		"docs/replay.md", "docs/agent-events.md", "docs/glossary.md",
	}},
	{"Operate", []string{"docs/operations.md", "docs/errors.md", "docs/threat-model.md", "deploy/README.md"}},
	{"Trust", []string{"docs/promises.md", "docs/conformance.md", "benchmarks/RESULTS.md", "docs/rough-edges.md", "docs/decisions/README.md", "CHANGELOG.md", "CONTRIBUTING.md"}},
}

// listed returns the chapters with the pages that there are, and behind them
// those that no chapter names.
func listed(fsys fs.FS) ([]chapter, error) {
	var found []string
	err := fs.WalkDir(fsys, "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == ".md" {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var chapters []chapter
	add := func(c chapter) {
		if len(c.pages) > 0 {
			chapters = append(chapters, c)
		}
	}
	for _, c := range contents {
		c.pages = slices.DeleteFunc(slices.Clone(c.pages), func(name string) bool {
			_, err := fs.Stat(fsys, name)
			return err != nil
		})
		for _, name := range c.pages {
			found = slices.DeleteFunc(found, func(other string) bool { return other == name })
		}
		add(c)
	}
	more, decisions := chapter{title: "More"}, chapter{title: "Decisions"}
	for _, name := range found {
		if strings.HasPrefix(name, "docs/decisions/") {
			decisions.pages = append(decisions.pages, name)
		} else {
			more.pages = append(more.pages, name)
		}
	}
	add(more)
	add(decisions)
	return chapters, nil
}

// address returns where the page of a document is on the site, without its
// ending: docs/guides/a2a.md is guides/a2a, and README.md is index.
func address(document string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(document, "docs/"), ".md")
	dir, file := path.Split(name)
	switch {
	case document == "README.md":
		return "index"
	case file == "README":
		return path.Clean(dir)
	}
	return strings.ToLower(name)
}
