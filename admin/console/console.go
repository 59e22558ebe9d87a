// Package console is the pages of the admin listener: templates, one stylesheet,
// one script, and nothing of another origin (U1). It reads nothing and decides
// nothing: package admin gives it what its own read models found, and it writes
// that down as HTML.
//
// A screen is a file of templates/ that defines "content", and a type of this
// package that it is given as [Page].Content. Add both to screens, below. What
// screens share are parts, each a template that is given one value:
//
//	{{template "badge" .State}}     a [Kind]: a shape and a word, in the colour of what it means
//	{{template "shape" .State}}     the shape alone
//	{{template "money" (money .M)}} an amount; (estimated .M .Est) puts est. before it
//	{{template "id" .Run}}          a string-like id: eight characters of it, copied whole by a click
//	{{template "when" .Began}}      a time of day, the exact time when pointed at
//	{{template "ago" .Last}}        the same, as "3 min ago" where the script runs
//	{{template "duration" .D}}      a time.Duration, rounded; exact when pointed at
//	{{template "milliseconds" .P50}} the same, of a number of milliseconds
//	{{template "command" "text"}}   a command and a button that copies it
//	{{template "empty" .Empty}}     an [Empty]: what is not here, and what to type to change that
//	{{template "head" .Columns}}    the head of a table, of [Column]s
//	{{template "filters" .Filters}} a form of [Filters], whose fields are the URL's
//	{{template "pager" .Pager}}     a [Pager]
//	{{template "live" .URL}}        the state of a live page, and its pause; see below
//	{{template "ask" .Stop}}        an [Ask]: a button, and what it does before it does it (U5)
//	{{template "csrf" .CSRF}}       the hidden field of a form that posts
//
// A table is <div class="scroll"><table class="cards">: below 720 pixels a row
// becomes a card, whose cells say what they are by data-label. Numbers stand in
// class num. A row has a data-key that stays the same and one link of it
// data-main, which a click on the row and Enter follow. A part of a page that is
// renewed while it is read has a data-part with a name of its own; a page that
// has one names in "live" the URL that tells of changes (U4). Nothing has a style
// attribute: the policy of the pages forbids it.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed assets/*
var assetFiles embed.FS

//go:embed templates/*.html
var templateFiles embed.FS

// screens are the templates of pages, each with the layout and the parts.
var screens = []string{"signin", "problem", "runs", "run", "graph", "payers", "payer", "agents", "agent", "inbox"}

// Policy is the Content-Security-Policy of every page (U1).
const Policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// AssetPath is where the assets are served, with their names behind it.
const AssetPath = "/console/assets/"

// A Console renders pages. It is safe for concurrent use.
type Console struct {
	pages  map[string]func() (*template.Template, error) // each is parsed when it is first asked for
	assets map[string]asset                              // by their names with hashes
	names  map[string]string                             // name → name with its hash
}

type asset struct {
	kind string
	body []byte
}

// New reads the assets that are built in. A screen is parsed when it is first
// rendered: every verb of the command line opens a bus, and shows none.
func New() (*Console, error) {
	c := &Console{pages: map[string]func() (*template.Template, error){}, assets: map[string]asset{}, names: map[string]string{}}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		body, err := assetFiles.ReadFile("assets/" + f.Name())
		if err != nil {
			return nil, err
		}
		sum, ext := sha256.Sum256(body), path.Ext(f.Name())
		hashed := strings.TrimSuffix(f.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		c.names[f.Name()], c.assets[hashed] = hashed, asset{kind: mime.TypeByExtension(ext), body: body}
	}
	funcs := functions()
	funcs["asset"] = func(name string) (string, error) {
		hashed, ok := c.names[name]
		if !ok {
			return "", fmt.Errorf("there is no asset %s", name)
		}
		return AssetPath + hashed, nil
	}
	for _, screen := range screens {
		c.pages[screen] = sync.OnceValues(func() (*template.Template, error) {
			return template.New(screen).Funcs(funcs).ParseFS(templateFiles, "templates/layout.html", "templates/parts*.html", "templates/"+screen+".html")
		})
	}
	return c, nil
}

// Render answers with a screen. Nothing is written when it fails.
func (c *Console) Render(w http.ResponseWriter, status int, screen string, p Page) error {
	parsed, ok := c.pages[screen]
	if !ok {
		return fmt.Errorf("there is no screen %s", screen)
	}
	t, err := parsed()
	if err != nil {
		return fmt.Errorf("screen %s: %w", screen, err)
	}
	for i := range p.Screens {
		p.Screens[i].Here = p.Screens[i].URL == p.Here
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "layout", p); err != nil {
		return fmt.Errorf("screen %s: %w", screen, err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", Policy)
	w.WriteHeader(status)
	_, _ = w.Write(straight(b.Bytes())) // a browser that left is its own loss
	return nil
}

// turns are the characters that turn the direction of text (unicode.Bidi_Control).
var turns = bytes.Fields([]byte("\u061C \u200E \u200F \u202A \u202B \u202C \u202D \u202E \u2066 \u2067 \u2068 \u2069"))

// straight shows the characters of a page that turn the direction of text, as on
// terminals: what somebody approves must stand there as it will be read. Scripts
// that go from right to left do so without them.
func straight(page []byte) []byte {
	for _, turn := range turns {
		if bytes.Contains(page, turn) {
			page = bytes.ReplaceAll(page, turn, []byte("\uFFFD"))
		}
	}
	return page
}

// ServeAsset answers with the asset of a name that [Console.Render] wrote, and
// reports whether there is one. Its content never changes under that name.
func (c *Console) ServeAsset(w http.ResponseWriter, name string) bool {
	a, ok := c.assets[name]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.body) // a browser that left is its own loss
	return true
}
