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
