package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed style.css
var style []byte

// build returns the files of the site by name. A link that leads to no page, or
// to no heading of it, is an error.
func build(fsys fs.FS) (map[string][]byte, error) {
	chapters, err := listed(fsys)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, c := range chapters {
		for _, name := range c.pages {
			known[name] = true
		}
	}
	pages := map[string]*page{}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(known)) {
		p, err := read(fsys, name, known)
		pages[name], faults = p, append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if err := checkHeadings(pages); err != nil {
		return nil, err
	}
	files := map[string][]byte{"style.css": style, "llms.txt": guide(chapters, pages)}
	t := template.Must(template.New("").Parse(pageHTML))
	for _, p := range pages {
		files[p.Address+".md"] = p.Text
		if files[p.Address+".html"], err = show(t, p, chapters, pages); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// checkHeadings finds the links to headings that are not there.
func checkHeadings(pages map[string]*page) error {
	var found []error
	for name, p := range pages {
		for _, l := range p.links {
			if l.heading != "" && !pages[l.to].ids[l.heading] {
				found = append(found, fmt.Errorf("%s links to #%s of %s, which has no such heading", name, l.heading, l.to))
			}
		}
	}
	return errors.Join(found...)
}

// A listing is a chapter as a page shows it.
type listing struct {
	Title string
	Pages []entry
	Open  bool // the page is one of it
}

// An entry leads from one page to another.
type entry struct {
	Title, To string
	Here      bool
}

// show returns a page with the contents beside it.
func show(t *template.Template, p *page, chapters []chapter, pages map[string]*page) ([]byte, error) {
	var menu []listing
	for _, c := range chapters {
		l := listing{Title: c.title, Open: c.title != "Decisions"}
		for _, name := range c.pages {
			to := pages[name]
			l.Pages = append(l.Pages, entry{to.Title, relative(p.Address, to.Address) + ".html", to == p})
			l.Open = l.Open || to == p
		}
		menu = append(menu, l)
	}
	var b bytes.Buffer
	err := t.Execute(&b, map[string]any{
		"Page": p, "Menu": menu, "Home": relative(p.Address, "index.html"), "Style": relative(p.Address, "style.css"), "Text": relative(p.Address, p.Address+".md"),
		"Body": template.HTML(p.Body), //nolint:gosec // made by goldmark, which escapes HTML, from documents of this repository
	})
	return b.Bytes(), err
}

// guide returns llms.txt: what a program should read, and what for.
func guide(chapters []chapter, pages map[string]*page) []byte {
	var b strings.Builder
	home := pages["README.md"]
	fmt.Fprintf(&b, "# %s\n\n> %s\n", home.Title, home.Summary)
	for _, c := range chapters {
		title := c.title
		if title == "Decisions" {
			title = "Optional" // of llms.txt: may be skipped
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, name := range c.pages {
			p := pages[name]
			fmt.Fprintf(&b, "- [%s](%s.md)", p.Title, p.Address)
			if first, _, _ := strings.Cut(p.Summary, ". "); first != "" {
				fmt.Fprintf(&b, ": %s", strings.TrimSuffix(first, "."))
			}
			b.WriteByte('\n')
		}
	}
	return []byte(b.String())
}
