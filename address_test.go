package agentbus_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// C34: what an address is, and what is none.
func TestParseAddress(t *testing.T) {
	t.Parallel()
	long, label := strings.Repeat("a", 64), strings.Repeat("b", 63)
	for in, want := range map[string]string{
		"@agent@verse8.io":                    "@agent@verse8.io",
		"agent@verse8.io":                     "@agent@verse8.io",
		"acct:agent@verse8.io":                "@agent@verse8.io",
		"@Agent.One_2-3@Bots.EXAMPLE.com":     "@Agent.One_2-3@bots.example.com",
		"@a@xn--bcher-kva.example":            "@a@xn--bcher-kva.example",
		"@a@bots.localhost":                   "@a@bots.localhost",
		"@a@4chan.example":                    "@a@4chan.example",
		"@" + long + "@" + label + ".example": "@" + long + "@" + label + ".example",

		// the list of C34
		"@verse8.io": "", "@@verse8.io": "", "@foo@bar@baz": "", "@foo@localhost": "",

		"": "", "@": "", "@@": "", "a": "", "a@": "", "@a@": "", "acct:": "", "acct:@a@b.c": "", "acct:acct:a@b.c": "", "@acct:a@b.c": "",
		"@a@b.c.": "", "@a@.b.c": "", "@a@b..c": "", "@a@-b.c": "", "@a@b-.c": "", "@a@b_c.d": "", "@a@bücher.example": "", "@a@b.c/d": "",
		"@a@b.c:443": "", "@a@127.0.0.1": "", "@a@0x7f.1": "", "@a@[::1]": "", "@a b@c.d": "", " @a@b.c": "", "@a@b.c ": "", "@a@b.c\n": "",
		"@ä@b.c": "", "@a+b@c.d": "", "@a%40b@c.d": "", "mailto:a@b.c": "", "ACCT:a@b.c": "", "@a@\u212Aelvin.example": "", "@a\x00@b.c": "",
		"@" + long + "a@b.c": "", "@a@" + label + "b.example": "", "@a@" + strings.Repeat("abcdefghi.", 26) + "c": "",
	} {
		got, err := agentbus.ParseAddress(in)
		if got.String() != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
		if err != nil && (agentbus.CodeOf(err) != agentbus.CodeInvalidRequest || strings.Contains(err.Error(), "@")) { // X32
			t.Errorf("%q: %v, want invalid_request without a mention", in, err)
		}
	}
}

// C34, X14: the case of the local part is kept and does not count; everything
// else does.
func TestAddressesCompareFolded(t *testing.T) {
	t.Parallel()
	parse := func(s string) agentbus.Address {
		a, err := agentbus.ParseAddress(s)
		if err != nil {
			t.Fatal(s, err)
		}
		return a
	}
	critic := parse("@Critic@bots.example.com")
	for other, want := range map[string]bool{
		"acct:critic@BOTS.example.com": true, "critic@bots.example.com": true,
		"@critics@bots.example.com": false, "@critic@bot.example.com": false, "@critic@example.com": false, "@cri.tic@bots.example.com": false,
	} {
		if got := critic.Equal(parse(other)); got != want || (critic.Key() == parse(other).Key()) != want {
			t.Errorf("%s equals %s: %v", other, critic, got)
		}
	}
	if critic.Acct() != "acct:Critic@bots.example.com" || critic.Local() != "Critic" || critic.Domain() != "bots.example.com" {
		t.Error(critic.Acct(), critic.Local(), critic.Domain())
	}
	var none agentbus.Address
	if !none.IsZero() || critic.IsZero() || none.String()+none.Acct()+none.Key() != "" {
		t.Error("the zero address is not none")
	}
}

func TestAddressInJSON(t *testing.T) {
	t.Parallel()
	var card struct {
		Address agentbus.Address `json:"address"`
	}
	if err := json.Unmarshal([]byte(`{"address":"acct:a@B.c"}`), &card); err != nil || card.Address.String() != "@a@b.c" {
		t.Error(card, err)
	}
	if text, err := json.Marshal(card); string(text) != `{"address":"@a@b.c"}` || err != nil {
		t.Errorf("%s %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"address":""}`), &card); err != nil || !card.Address.IsZero() {
		t.Error(card, err)
	}
	if err := json.Unmarshal([]byte(`{"address":"nobody"}`), &card); err == nil {
		t.Error("nobody is no address")
	}
}

// C34: what is read is written in one way, which reads as itself.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"@agent@verse8.io", "acct:A@B.c", "a@b.c", "@verse8.io", "@@verse8.io", "@foo@bar@baz", "@foo@localhost", "@a@1.2", "@a@b.c."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := agentbus.ParseAddress(s)
		if err != nil {
			if !a.IsZero() {
				t.Errorf("%q: %v and %v", s, a, err)
			}
			return
		}
		for _, form := range []string{a.String(), a.Acct(), a.Key(), a.String()[1:]} {
			b, err := agentbus.ParseAddress(form)
			if err != nil || !b.Equal(a) || b.Domain() != a.Domain() {
				t.Errorf("%q is %v; %q is %v, %v", s, a, form, b, err)
			}
		}
		if strings.ContainsAny(a.Local()+a.Domain(), "@/:?#%[]\\ \r\n") || strings.HasSuffix(a.Domain(), ".") || !strings.Contains(a.Domain(), ".") {
			t.Errorf("%q is %v", s, a)
		}
	})
}
