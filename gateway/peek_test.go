package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

// TestPeek: G9, what is read of a body, and what is refused because two readers
// could read it differently.
func TestPeek(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		model  string
		stream bool
		bad    bool
	}{
		`{"model":"a","stream":true}`:                    {"a", true, false},
		"\t{ \"stream\" : false , \"model\" : \"a\" }\n": {"a", false, false},
		`{}`: {},
		`{"messages":[{"model":"x","stream":true}],"model":"a"}`:  {"a", false, false},
		`{"x":"}\"{","model":"a"}`:                                {"a", false, false},
		`{"x":[1,[2,{"y":"]"}]],"n":-1.5e3,"b":null,"model":"a"}`: {"a", false, false},
		`{"m\u006fdel":"a"}`:                                      {"a", false, false},
		`{"model":"\u0061\n"}`:                                    {"a\n", false, false},
		`{"stream":null,"model":""}`:                              {},
		`{"model":"a","model":"b"}`:                               {bad: true},
		`{"model":"a","Model":"b"}`:                               {bad: true},
		`{"model":"a","m\u006fdel":"b"}`:                          {bad: true},
		`{"stream":true,"STREAM":false}`:                          {bad: true},
		`{"model":1}`:                                             {bad: true},
		`{"model":null}`:                                          {bad: true},
		`{"stream":"true"}`:                                       {bad: true},
		`{"stream":1}`:                                            {bad: true},
		`[]`:                                                      {bad: true},
		`"model"`:                                                 {bad: true},
		`{`:                                                       {bad: true},
		``:                                                        {bad: true},
		`{"model":"a"}{}`:                                         {bad: true},
		`{"x":` + strings.Repeat("[", 20000) + `}`:               {bad: true},
		"{\"model\":\"a\xff\"}":                                  {"a\xff", false, false},
		`{"Model":"a"}`:                                          {},
		`{"x":"` + strings.Repeat("y", 1<<16) + `","model":"a"}`: {"a", false, false},
		`{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,"model":"a"}`: {"a", false, false},
	} {
		p, err := peekBody([]byte(body))
		if (err != nil) != want.bad {
			t.Errorf("peekBody(%.60q) = %v, want bad %t", body, err, want.bad)
			continue
		}
		if err != nil {
			if agentbus.CodeOf(err) != agentbus.CodeInvalidRequest {
				t.Errorf("peekBody(%.60q): code %s", body, agentbus.CodeOf(err))
			}
			continue
		}
		if p.model != want.model || p.stream != want.stream {
			t.Errorf("peekBody(%.60q) = %q %t, want %q %t", body, p.model, p.stream, want.model, want.stream)
		}
	}
}

// TestWithModel: G1, only the value of model changes.
func TestWithModel(t *testing.T) {
	t.Parallel()
	body := []byte("{ \"a\": 1.0e0,\t\"model\" : \"a\\u0062\" , \"z\":[ ] }\n")
	p, err := peekBody(body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(p.withModel(body, "gpt-x")), "{ \"a\": 1.0e0,\t\"model\" : \"gpt-x\" , \"z\":[ ] }\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := p.withModel(body, ""); &got[0] != &body[0] {
		t.Error("no model of its own: the body must pass as it came")
	}
	bare, err := peekBody([]byte(`{"x":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(bare.withModel([]byte(`{"x":1}`), "gpt-x")); got != `{"x":1}` {
		t.Errorf("a body without model became %s", got)
	}
}

// FuzzPeek: peekBody reads what encoding/json reads, or refuses.
func FuzzPeek(f *testing.F) {
	for _, s := range []string{`{"model":"a","stream":true}`, `{"x":[{}],"model":"\u0061"}`, `{"model":"a","model":"b"}`, `{"a":{"b":"\\\""},"model":"m"}`, ``, `[1]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := peekBody(body)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("accepted what is not an object: %v", err)
		}
		var model string
		if raw, ok := want["model"]; ok {
			if err := json.Unmarshal(raw, &model); err != nil {
				t.Fatalf("accepted model %s", raw)
			}
		}
		if strings.ToValidUTF8(p.model, "\ufffd") != strings.ToValidUTF8(model, "\ufffd") && json.Valid(body) && !strings.Contains(model, "\ufffd") {
			t.Fatalf("model %q, encoding/json reads %q", p.model, model)
		}
		if p.over > 0 && !json.Valid(p.withModel(body, "other")) {
			t.Fatalf("withModel broke %q", body)
		}
	})
}
