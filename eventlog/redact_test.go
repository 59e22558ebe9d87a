package eventlog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
)

const secret = "s3cr3t-of-the-writer"

func redactor() *eventlog.Redactor {
	return eventlog.NewRedactor(
		eventlog.Secret{ID: "agents.writer", Value: agentbus.NewCredential("Bearer " + secret)},
		eventlog.Secret{ID: "short", Value: agentbus.NewCredential("the")},
		eventlog.Secret{ID: "odd", Value: agentbus.NewCredential(`quo"te\and é`)},
	)
}

// E28: secrets by value and by shape, in texts.
func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"the key is " + secret + "!":                           "the key is [REDACTED:agents.writer]!",
		"Bearer " + secret:                                     "[REDACTED:bearer]",
		"sk-abcdefghijklmnop1234 and ghp_abcdefghijklmnopqrst": "[REDACTED:api-key] and [REDACTED:github-token]",
		"task-oriented-architecture-of-risk-management":        "task-oriented-architecture-of-risk-management",
		"AKIAIOSFODNN7EXAMPLE.":                                "[REDACTED:aws-key].",
		"nothing here":                                         "nothing here",
	} {
		if got := redactor().Text(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// E28: secrets in JSON, whatever their escapes; what has none stays byte by byte.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := redactor()
	plain := json.RawMessage(`{"b": 1.0, "a":[12345678901234567890,"<é>"]}`)
	if got := r.JSON(plain); string(got) != string(plain) {
		t.Errorf("%s became %s", plain, got)
	}
	for in, want := range map[string]string{
		`{"z":{"k":["` + secret + `"]},"n":1.0}`: `{"n":1.0,"z":{"k":["[REDACTED:agents.writer]"]}}`,
		`["quo\"te\\and \u00e9"]`:                `["[REDACTED:odd]"]`,
		`{"` + secret + `":1}`:                   `{"[REDACTED:agents.writer]":1}`,
		`no json ` + secret:                      `"no json [REDACTED:agents.writer]"`,
	} {
		if got := r.JSON(json.RawMessage(in)); string(got) != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

// E28: a piece that ends in the open is given out with the next one, and words
// that are no secrets come at once.
func TestSplitter(t *testing.T) {
	t.Parallel()
	write, rest := redactor().Splitter()
	var got []string
	for _, piece := range []string{"Let me think. ", "It is s3cr3t-of", "-the-wri", "ter, and sk-abcdefghij", "klmnop", "qr", " is"} {
		got = append(got, write(piece))
	}
	got = append(got, rest())
	want := []string{"Let me think. ", "It is ", "", "[REDACTED:agents.writer], and ", "", "", "[REDACTED:api-key] i", "s"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// E28: a secret that is no text stands in no text, and breaks nothing.
func TestSecretThatIsNoText(t *testing.T) {
	t.Parallel()
	r := eventlog.NewRedactor(eventlog.Secret{ID: "seal", Value: agentbus.NewCredential(strings.Repeat("\xab", 32))})
	if got := r.Text("go on"); got != "go on" {
		t.Errorf("got %q", got)
	}
}

// E28: a token that is longer than what is held back is taken out too.
func TestSplitterLongToken(t *testing.T) {
	t.Parallel()
	write, rest := redactor().Splitter()
	var b strings.Builder
	b.WriteString(write("go sk-"))
	for range 5000 {
		b.WriteString(write("abcd"))
	}
	b.WriteString(write("ef on") + rest())
	if got := b.String(); got != "go [REDACTED:token] on" {
		t.Errorf("got %.80q", got)
	}
}

// E28: however a text is cut, no secret of it comes through.
func FuzzSplitter(f *testing.F) {
	f.Add("a "+secret+" b", uint64(7))
	f.Add("Bearer abcdefghijklmnopqrstuvw s3cr3t-of", uint64(0x1357))
	f.Add("sk-sk-abcdefghijklmnopqrs"+secret+secret, uint64(3))
	f.Add("quo\"te\\and é sk-abcdefghijklmnopq", uint64(99))
	f.Fuzz(func(t *testing.T, text string, cuts uint64) {
		write, rest := redactor().Splitter()
		var b strings.Builder
		for rest := text; rest != ""; {
			n := min(int(cuts%7)+1, len(rest))
			cuts = cuts>>3 | cuts<<61
			b.WriteString(write(rest[:n]))
			rest = rest[n:]
		}
		b.WriteString(rest())
		if strings.Contains(b.String(), secret) {
			t.Errorf("%q came through %q", secret, text)
		}
	})
}
