package console_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/agentbus/agentbus/admin/console"
)

// U1: every screen that there is a file of is one of the console's, and can be
// parsed with what screens share. That it says what it must is for the tests of
// package admin.
func TestEveryScreenIsWhole(t *testing.T) {
	t.Parallel()
	c, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		screen := strings.TrimSuffix(f.Name(), ".html")
		if screen == "layout" || strings.HasPrefix(screen, "parts") {
			continue
		}
		err := c.Render(httptest.NewRecorder(), http.StatusOK, screen, console.Page{})
		if filled := (template.ExecError{}); err != nil && !errors.As(err, &filled) { // it is given nothing to show
			t.Error(err)
		}
	}
}

// U1, U15: what turns the direction of text is shown on a page, so that what
// somebody approves reads as it is; scripts that go to the left stay as they are.
func TestPagesReadAsTheyAre(t *testing.T) {
	t.Parallel()
	c, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	err = c.Render(w, http.StatusOK, "problem", console.Page{Content: console.Problem{Title: "pay", Message: "to \u202Eecila\u202C or \u2067bob\u2069, שלום"}})
	if body := w.Body.String(); err != nil || !strings.Contains(body, "to \uFFFDecila\uFFFD or \uFFFDbob\uFFFD, שלום") {
		t.Errorf("%v %s", err, body)
	}
}

// U1, U15: a choice goes back as the agent gave it, whatever is shown.
func TestChoicesGoBackAsTheyAre(t *testing.T) {
	t.Parallel()
	c, err := console.New()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	card := console.InterruptCard{Choices: []string{"\u200Fyes", `"no"`}}
	err = c.Render(w, http.StatusOK, "inbox", console.Page{Content: console.InboxPage{Open: []console.InterruptCard{card}}})
	body := w.Body.String()
	for _, want := range []string{`value="&#8207;yes" checked> ` + "\uFFFDyes<", `value="&#34;no&#34;"> &#34;no&#34;<`} {
		if !strings.Contains(body, want) {
			t.Errorf("%v: the page lacks %q: %s", err, want, body)
		}
	}
}
