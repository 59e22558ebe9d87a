package agentbus_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
)

const canary = "Bearer sk-canary-7f3a9c"

// nested holds a credential where printers cannot call its methods.
type nested struct {
	Name   string
	Open   agentbus.Credential
	hidden agentbus.Credential
	deep   struct{ hidden *agentbus.Credential }
	list   []agentbus.Credential
	by     map[string]agentbus.Credential
	any    any
}

type embedded struct{ agentbus.Credential }

func holders() map[string]any {
	c := agentbus.NewCredential(canary)
	n := nested{Name: "n", Open: c, hidden: c, list: []agentbus.Credential{c}, by: map[string]agentbus.Credential{"k": c}, any: c}
	n.deep.hidden = &c
	return map[string]any{
		"value": c, "pointer": &c, "struct": n, "pointer to struct": &n,
		"exported": struct{ Auth agentbus.Credential }{c}, "embedded": embedded{c},
		"slice": []agentbus.Credential{c}, "array": [1]agentbus.Credential{c}, "slice of pointers": []*agentbus.Credential{&c},
		"map": map[string]agentbus.Credential{"k": c}, "map key": map[agentbus.Credential]int{c: 1},
		"any": []any{c}, "lineage": agentbus.Lineage{Run: "r", Auth: c}, "call": &agentbus.Call{Lineage: agentbus.Lineage{Auth: c}},
		"in an error": fmt.Errorf("call with %v: %w", c, &agentbus.Error{Code: agentbus.CodeInternal, Message: c.String(), Err: fmt.Errorf("%x", c)}),
	}
}

// shows reports how s tells the canary: as it is, or in an encoding of it.
func shows(s string) string {
	for _, secret := range []string{canary, strings.TrimPrefix(canary, "Bearer ")} {
		for how, form := range map[string]string{
			"plain": secret, "hex": hex.EncodeToString([]byte(secret)), "base64": base64.StdEncoding.EncodeToString([]byte(secret)),
			"spaced hex": strings.TrimSpace(fmt.Sprintf("% x", secret)), "bytes": strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]"),
		} {
			if strings.Contains(strings.ToLower(s), strings.ToLower(form)) {
				return how
			}
		}
	}
	return ""
}

// P19: a canary shows under no verb, in no holder.
func TestCredentialUnderEveryVerb(t *testing.T) {
	t.Parallel()
	for name, v := range holders() {
		for verb := 'A'; verb <= 'z'; verb++ {
			for _, flags := range []string{"", "+", "#", "-40", " ", "0", "40.40", "+#"} {
				format := "%" + flags + string(verb)
				if got := fmt.Sprintf(format, v); shows(got) != "" {
					t.Errorf("%s under %s: %s", name, format, got)
				}
			}
		}
		if got := fmt.Sprint(v) + fmt.Sprintln(v); shows(got) != "" {
			t.Errorf("%s printed: %s", name, got)
		}
	}
}

// P19: a credential prints as [redacted] under every verb but those that ask
// for its type or its address.
func TestCredentialPrints(t *testing.T) {
	t.Parallel()
	c := agentbus.NewCredential(canary)
	for _, verb := range []string{"%v", "%+v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%g", "%o", "%U", "%c", "%40s", "%!"} {
		if got := fmt.Sprintf(verb, c); got != "[redacted]" && verb != "%!" {
			t.Errorf("%s: %q", verb, got)
		}
	}
	if got, want := fmt.Sprintf("%#v", c), `agentbus.NewCredential("[redacted]")`; got != want {
		t.Errorf("%%#v: %q, want %q", got, want)
	}
	if got := fmt.Sprintf("%v %q %x", agentbus.Credential{}, agentbus.Credential{}, agentbus.Credential{}); got != "  " {
		t.Errorf("no credential prints as %q", got)
	}
}

// P19: nor in what an encoder writes, or refuses to write.
func TestCredentialEncoded(t *testing.T) {
	t.Parallel()
	for name, v := range holders() {
		j, err := json.Marshal(v)
		if out := fmt.Sprint(string(j), err); shows(out) != "" {
			t.Errorf("%s as JSON: %s", name, out)
		}
		x, err := xml.Marshal(v)
		if out := fmt.Sprint(string(x), err); shows(out) != "" {
			t.Errorf("%s as XML: %s", name, out)
		}
		var b bytes.Buffer
		err = gob.NewEncoder(&b).Encode(v)
		if out := fmt.Sprint(b.String(), err); shows(out) != "" {
			t.Errorf("%s as gob: %s", name, out)
		}
	}
	c := agentbus.NewCredential(canary)
	j, err := json.Marshal(map[string]any{"a": c, "b": &c, "c": agentbus.Credential{}})
	if want := `{"a":"[redacted]","b":"[redacted]","c":""}`; err != nil || string(j) != want {
		t.Errorf("JSON %s, %v, want %s", j, err, want)
	}
	x, err := xml.Marshal(struct {
		XMLName xml.Name            `xml:"call"`
		Attr    agentbus.Credential `xml:"attr,attr"`
		Auth    agentbus.Credential `xml:"auth"`
	}{Attr: c, Auth: c})
	if want := `<call attr="[redacted]"><auth>[redacted]</auth></call>`; err != nil || string(x) != want {
		t.Errorf("XML %s, %v, want %s", x, err, want)
	}
}

// P19: nor in a log.
func TestCredentialLogged(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		for name, v := range holders() {
			b.Reset()
			slog.New(h).With("with", v).WithGroup("g").Error("it failed", "value", v, slog.Group("h", "value", v))
			if shows(b.String()) != "" {
				t.Errorf("%s logged: %s", name, b.String())
			}
		}
		b.Reset()
		slog.New(h).Info("called", "auth", agentbus.NewCredential(canary))
		if !strings.Contains(b.String(), "[redacted]") {
			t.Errorf("logged: %s", b.String())
		}
	}
}

// P19: nor in a panic, recovered, or in a comparison that failed.
func TestCredentialInPanicsAndDiffs(t *testing.T) {
	t.Parallel()
	for name, v := range holders() {
		func() {
			defer func() {
				r := recover()
				if got := fmt.Sprintf("panic: %v %+v %#v", r, r, r); shows(got) != "" {
					t.Errorf("%s in a panic: %s", name, got)
				}
			}()
			panic(v)
		}()
	}
	joined := errors.Join(errors.New("first"), fmt.Errorf("second %w", &agentbus.Error{Code: agentbus.CodeInternal, Message: "x", Err: fmt.Errorf("%+v", holders())}))
	if got := joined.Error(); shows(got) != "" {
		t.Errorf("joined errors: %s", got)
	}
	a, b := agentbus.Lineage{Auth: agentbus.NewCredential(canary)}, agentbus.Lineage{Auth: agentbus.NewCredential("other")}
	if got := cmp.Diff(a, b, sameCredential); got == "" || shows(got) != "" {
		t.Errorf("diff: %s", got)
	}
}

// P19: there is one way out.
func TestCredentialReveal(t *testing.T) {
	t.Parallel()
	if got := agentbus.NewCredential(canary).Reveal(); got != canary {
		t.Errorf("Reveal = %q", got)
	}
	if c := agentbus.NewCredential(""); !c.IsZero() || c.Reveal() != "" || c != (agentbus.Credential{}) {
		t.Error("an empty secret is a credential")
	}
	if a, b := agentbus.NewCredential(canary), agentbus.NewCredential(canary); a == b {
		t.Error("== tells whether two secrets are equal")
	}
}

func TestCredentialToken(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"Bearer sk": "sk", "bearer sk": "sk", "BEARER   sk": "sk", "Bearer a b": "a b",
		"Bearer": "", "Bearer ": "", "Basic sk": "", "sk": "", "": "", "Bearersk": "",
	} {
		got, ok := agentbus.NewCredential(value).Token()
		if got.Reveal() != want || ok != (want != "") {
			t.Errorf("Token of %q = %q, %t, want %q", value, got.Reveal(), ok, want)
		}
	}
}

// P19: a payer is told by an HMAC under the install key.
func TestCredentialFingerprint(t *testing.T) {
	t.Parallel()
	c := agentbus.NewCredential("what do ya want for nothing?")
	got := c.Fingerprint([]byte("Jefe"))
	if want := "5bdcc146bf60754e6a042426089575c7"; got != want { // RFC 4231, case 2, its first half
		t.Errorf("fingerprint %s, want %s", got, want)
	}
	if other := c.Fingerprint([]byte("another install")); other == got {
		t.Error("two installs tell a credential alike")
	}
	if other := agentbus.NewCredential(canary).Fingerprint([]byte("Jefe")); other == got {
		t.Error("two credentials have one fingerprint")
	}
}

// TestRedact: P19, what another party said is cleared of the credential and of
// its token.
func TestRedact(t *testing.T) {
	t.Parallel()
	c := agentbus.NewCredential(canary)
	for said, want := range map[string]string{
		"no":                             "no",
		"bad key: " + canary + "!":       "bad key: [redacted]!",
		"bad key " + canary[7:]:          "bad key [redacted]",
		canary + canary[7:]:              "[redacted][redacted]",
		strings.ToUpper(canary) + " and": strings.ToUpper(canary) + " and",
	} {
		if got := c.Redact(said); got != want {
			t.Errorf("Redact(%q) = %q, want %q", said, got, want)
		}
	}
	if got := (agentbus.Credential{}).Redact("a"); got != "a" {
		t.Errorf("no credential redacts to %q", got)
	}
}
