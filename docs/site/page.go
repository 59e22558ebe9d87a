package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// source is where files of the repository are read that have no page.
const source = "https://github.com/agentbus/agentbus/blob/main/"

// A page is a document as the site shows it.
type page struct {
	Document string // its file in the repository
	Address  string // without its ending
	Title    string
	Summary  string // its first paragraph, as plain text
	Body     []byte
	Text     []byte          // what it was made of, with links as they lead on the site
	ids      map[string]bool // of its headings
	links    []link          // to other pages, and to its own headings
}

// A link is one from a page to a heading of a page.
type link struct{ to, heading string }

// markdown reads documents as GitHub shows them: with tables, and with ids at
// headings.
func markdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
}

// read makes the page of a document. pages holds the documents that have one.
func read(fsys fs.FS, document string, pages map[string]bool) (*page, error) {
	src, err := fs.ReadFile(fsys, document)
	if err != nil {
		return nil, err
	}
	p := &page{Document: document, Address: address(document), Text: src, ids: map[string]bool{}}
	md := markdown()
	doc := md.Parser().Parse(text.NewReader(src))
	err = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			p.heading(n, src)
		case *ast.Paragraph:
			if p.Summary == "" && n.Parent() == doc {
				p.Summary = plain(n, src)
			}
		case *ast.Link:
			to, err := p.follow(fsys, string(n.Destination), pages)
			p.Text = bytes.ReplaceAll(p.Text, []byte("]("+string(n.Destination)+")"), []byte("]("+strings.Replace(to, ".html", ".md", 1)+")"))
			n.Destination = []byte(to)
			return ast.WalkContinue, err
		case *ast.Image, *ast.RawHTML, *ast.HTMLBlock:
			return ast.WalkStop, fmt.Errorf("%s: pictures and HTML are not in documents", document)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	if p.Title == "" {
		return nil, fmt.Errorf("%s has no title", document)
	}
	var b bytes.Buffer
	err = md.Renderer().Render(&b, src, doc)
	p.Body = b.Bytes()
	return p, err
}

func (p *page) heading(n *ast.Heading, src []byte) {
	if id, ok := n.AttributeString("id"); ok {
		b, _ := id.([]byte)
		p.ids[string(b)] = true
	}
	if n.Level == 1 && p.Title == "" {
		p.Title = plain(n, src)
	}
}

// plain returns the text of a node, without its markup.
func plain(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it returns no error
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(src))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// follow returns where a link of the document leads on the site: to a page, to
// a file of the repository, or away.
func (p *page) follow(fsys fs.FS, to string, pages map[string]bool) (string, error) {
	u, err := url.Parse(to)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.Document, err)
	}
	if u.Scheme != "" {
		return to, nil
	}
	file := p.Document
	if u.Path != "" {
		file = path.Join(path.Dir(p.Document), u.Path)
	}
	if _, err := fs.Stat(fsys, file); err != nil {
		return "", fmt.Errorf("%s links to %s: %w", p.Document, to, err)
	}
	if !pages[file] {
		return source + file, nil
	}
	p.links = append(p.links, link{file, u.Fragment})
	if u.Path == "" {
		return to, nil
	}
	u.Path = relative(p.Address, address(file)) + ".html"
	return u.String(), nil
}

// relative returns the way from one address to another.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}
