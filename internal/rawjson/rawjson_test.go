package rawjson_test

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/agentbus/agentbus/internal/rawjson"
)

// FuzzMembers: the members of an object are those that encoding/json finds, in
// order, and nothing is read beyond the object.
func FuzzMembers(f *testing.F) {
	f.Add(` { } `)
	f.Add(`{"a" : 1 , "b\u0041\"":"x\\", "":{"c":[{},"}"]},"d":-1.5e3}`)
	f.Add(`{"a":1,"a":null,"b":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		b := []byte(text)
		at := rawjson.Space(b, 0)
		if !json.Valid(b) || b[at] != '{' {
			return
		}
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		end := rawjson.Members(b, at, func(m rawjson.Member) bool {
			if rawjson.Text(b[m.From:rawjson.Value(b, m.From)]) != string(m.Key) && json.Valid(m.Key) {
				t.Errorf("key %q", m.Key)
			}
			if !json.Valid(b[m.At:m.Over]) {
				t.Errorf("value %q", b[m.At:m.Over])
			}
			got[rawjson.Text(b[m.From:rawjson.Value(b, m.From)])] = string(b[m.At:m.Over])
			return true
		})
		if rawjson.Space(b, end) != len(b) {
			t.Errorf("the object ends at %d of %d", end, len(b))
		}
		if len(got) > len(want) {
			t.Errorf("found %d members of %d", len(got), len(want))
		}
		for k, v := range want {
			if found, ok := got[k]; ok && found != string(v) {
				t.Errorf("%q: %s, want %s", k, found, v)
			}
		}
	})
}

// FuzzValid: a text is valid where encoding/json says so.
func FuzzValid(f *testing.F) {
	for _, text := range [...]string{
		"", " ", "[1,2,]", "[,]", "{,}", `{"a":1,}`, `{"a"}`, `{"a":}`, `{1:2}`, `{"a":1 "b":2}`, "[1 2]", "1 2", "{]", "[}", "[", "{", `{"a":`,
		` {"a\u00fF\n\/":[true,false,null,{}, [ ]],"":-0.50e+10} ` + "\n\t\r", "01", "-", "-0", "1.", ".5", "1e", "1e-", "2E+07", "+1", "tru", "nulll", "NaN",
		`"a`, `"\`, `"\x"`, `"\u00g0"`, `"\u12`, "\"\n\"", "\"\x7f\xff\xfe\"", "\ufeff1", "\v1", "1\x00",
	} {
		f.Add(text, 0)
		f.Add(text, 3)
	}
	f.Add("1", 10_000) // as deep as it goes
	f.Add("1", 10_001)
	f.Add("[]", 10_000)
	f.Fuzz(func(t *testing.T, text string, deep int) {
		deep = max(min(deep, 20_000), 0)
		for _, b := range [][]byte{
			[]byte(strings.Repeat("[", deep) + text + strings.Repeat("]", deep)),
			[]byte(strings.Repeat(`{"a":`, deep) + text + strings.Repeat("}", deep)),
		} {
			if got, want := rawjson.Valid(b), json.Valid(b); got != want {
				t.Errorf("%.100q, %d deep: %t, want %t", text, deep, got, want)
			}
		}
	})
}

// FuzzElements: the elements of a list are those that encoding/json finds.
func FuzzElements(f *testing.F) {
	f.Add(` [ ] `)
	f.Add(`[1, "a\\", "\"]", [2,[]], {"b":"]"} ,null]`)
	f.Fuzz(func(t *testing.T, text string) {
		b := []byte(text)
		at := rawjson.Space(b, 0)
		if !json.Valid(b) || b[at] != '[' {
			return
		}
		var want []json.RawMessage
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		n := 0
		rawjson.Elements(b, at, func(from, over int) bool {
			if n >= len(want) || string(want[n]) != string(b[from:over]) {
				t.Fatalf("element %d is %q", n, b[from:over])
			}
			n++
			return true
		})
		if n != len(want) {
			t.Errorf("%d of %d", n, len(want))
		}
	})
}

// FuzzAppendText: a text is written as encoding/json writes it.
func FuzzAppendText(f *testing.F) {
	f.Add("run-1")
	f.Add("\"\\<é\n\u2028")
	f.Fuzz(func(t *testing.T, text string) {
		want, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := rawjson.AppendText(nil, text); string(got) != string(want) {
			t.Errorf("%q is written %s, want %s", text, got, want)
		}
	})
}

// FuzzPlain: what is plain is written as encoding/json writes it.
func FuzzPlain(f *testing.F) {
	f.Add("run-1", int64(-4), true)
	f.Add("\"\\<é\n\u2028", int64(0), false)
	f.Add("", int64(math.MaxInt64), true)
	f.Fuzz(func(t *testing.T, text string, n int64, truth bool) {
		type inner struct {
			Text string `json:"text"`
			Any  any    `json:"any"`
		}
		want, err := json.Marshal(struct {
			Text  string `json:"text"`
			Int   int64  `json:"int"`
			Inner inner  `json:"inner"`
			Bool  bool   `json:"bool"`
			Null  *int   `json:"null"`
			Empty inner  `json:"empty"`
		}{text, n, inner{text, n}, truth, nil, inner{"", text}})
		if err != nil {
			t.Fatal(err)
		}
		p := rawjson.NewPlain(nil)
		p.Text("text", text)
		p.Int("int", n)
		p.Open("inner")
		p.Text("text", text)
		p.Any("any", n)
		p.Close()
		p.Bool("bool", truth)
		p.Null("null")
		p.Open("empty")
		p.Text("text", "")
		p.Any("any", text)
		p.Close()
		p.Close()
		got, plain := p.Bytes()
		if quoted := rawjson.AppendText(nil, text); plain != (string(quoted) == `"`+text+`"`) {
			t.Errorf("%q is plain: %t", text, plain)
		}
		if plain && string(got) != string(want) {
			t.Errorf("written is %s, want %s", got, want)
		}
	})
}

// TestOdd: what is neither a text nor a whole number is not plain.
func TestOdd(t *testing.T) {
	t.Parallel()
	for _, v := range []any{1.5, nil, []string{"a"}, true, uint8(1)} {
		p := rawjson.NewPlain(nil)
		p.Any("v", v)
		p.Close()
		if _, plain := p.Bytes(); plain {
			t.Errorf("%v is plain", v)
		}
	}
}

// FuzzHeaderText: a header is written as encoding/json writes it.
func FuzzHeaderText(f *testing.F) {
	f.Add("Content-Type", "application/json", "Via", "1.1 \"a\"", true)
	f.Add("X", "é", "X", "\xff", false)
	f.Fuzz(func(t *testing.T, name, value, second, also string, more bool) {
		headers := []http.Header{nil, {}, {name: nil}, {name: {}}, {name: {value}, second: {also, value}}}
		if more {
			headers = append(headers, http.Header{})
			for i := range 40 {
				headers[len(headers)-1][name+strconv.Itoa(i*7%40)] = []string{value}
			}
		}
		for _, h := range headers {
			want, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			if got := rawjson.HeaderText(h); got != string(want) {
				t.Errorf("%q is written %s, want %s", h, got, want)
			}
		}
	})
}
