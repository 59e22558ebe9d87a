package gateway

import (
	"strings"
	"testing"

	"github.com/agentbus/agentbus"
)

const (
	chunk   = `data: {"choices":[{"index":0,"delta":{"content":"é"}}]}` + "\n\n"
	withUse = `data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}}` + "\n\n"
	doneEnd = "data: [DONE]\n\n"
)

// TestTap: G10 and G15, what the tap tells of a stream, whatever its line ends
// and wherever its bytes are cut.
func TestTap(t *testing.T) {
	t.Parallel()
	use := agentbus.Usage{InputTokens: 12, OutputTokens: 7, CachedTokens: 3}
	for name, c := range map[string]struct {
		stream string
		as     dialect
		usage  agentbus.Usage // zero: none told
		fails  string         // part of the message; "": whole
	}{
		"plain":               {chunk + withUse + doneEnd, dialectChat, use, ""},
		"CRLF":                {strings.ReplaceAll(chunk+withUse+doneEnd, "\n", "\r\n"), dialectChat, use, ""},
		"CR":                  {strings.ReplaceAll(chunk+withUse+doneEnd, "\n", "\r"), dialectChat, use, ""},
		"BOM":                 {"\xef\xbb\xbf" + withUse + doneEnd, dialectChat, use, ""},
		"comments":            {": hello\n\n" + withUse + ": data: [DONE]\n" + doneEnd, dialectChat, use, ""},
		"no space":            {"data:" + strings.TrimPrefix(withUse, "data: ") + "data:[DONE]\n\n", dialectChat, use, ""},
		"no final blank line": {withUse + "data: [DONE]\n", dialectChat, use, ""},
		"no final line end":   {withUse + "data: [DONE]", dialectChat, use, ""},
		"data over lines":     {"data: {\"choices\":[],\"usage\":\ndata: {\"prompt_tokens\":12,\"completion_tokens\":7,\ndata: \"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n" + doneEnd, dialectChat, use, ""},
		"usage null":          {strings.Replace(chunk, `}]}`, `}],"usage":null}`, 1) + withUse + doneEnd, dialectChat, use, ""},
		"usage, then null":    {withUse + strings.Replace(chunk, `}]}`, `}],"usage":null}`, 1) + doneEnd, dialectChat, use, ""},
		"no usage":            {chunk + doneEnd, dialectChat, agentbus.Usage{}, ""},
		"cut":                 {chunk + withUse, dialectChat, use, "before its last event"},
		"cut in an event":     {chunk + `data: {"choices":[{"delta":{"con`, dialectChat, agentbus.Usage{}, "before its last event"},
		"empty":               {"", dialectChat, agentbus.Usage{}, "before its last event"},
		"DONE in a text":      {`data: {"choices":[{"delta":{"content":"[DONE]"}}]}` + "\n\n", dialectChat, agentbus.Usage{}, "before its last event"},
		"error under 200":     {chunk + `data: {"error":{"message":"out of @luck","code":500}}` + "\n\n" + doneEnd, dialectChat, agentbus.Usage{}, "out of ·luck"},
		"error in a text":     {`data: {"choices":[{"delta":{"content":"\"error\""}}]}` + "\n\n" + doneEnd, dialectChat, agentbus.Usage{}, ""},
		"error null":          {`data: {"error":null,"choices":[]}` + "\n\n" + doneEnd, dialectChat, agentbus.Usage{}, ""},
		"event of an error":   {chunk + "event: error\ndata: {\"message\":\"out of @luck\"}\n\n" + doneEnd, dialectChat, agentbus.Usage{}, "out of ·luck"},
		"event of words":      {chunk + "data: out of luck\nevent:error\n\n" + doneEnd, dialectChat, agentbus.Usage{}, "out of luck"},
		"event with an error": {chunk + "event: error\ndata: {\"error\":{\"message\":\"out of luck\"},\"message\":\"x\"}\n\n" + doneEnd, dialectChat, agentbus.Usage{}, "out of luck"},
		"other events":        {"event: error\n: no data\n\n" + chunk + "event: errors\n" + chunk + "event: error\nevent: message\n" + chunk + doneEnd, dialectChat, agentbus.Usage{}, ""},
		"DONE among spaces":   {withUse + "data:  [DONE] \n\n", dialectChat, use, ""},
		"error of responses":  {"event: error\ndata: {\"type\":\"error\",\"code\":\"x\",\"message\":\"no\",\"param\":null}\n\n", dialectResponses, agentbus.Usage{}, "no"},
		"error elsewhere":     {"event: error\ndata: x\n\n", dialectOther, agentbus.Usage{}, ""},
		"other dialect":       {"data: x\n\n", dialectOther, agentbus.Usage{}, ""},
		"responses":           {"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":12,\"output_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":3}}}}\n\n", dialectResponses, use, ""},
		"responses failed":    {"data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":\"no\"}}}\n\n", dialectResponses, agentbus.Usage{}, "no"},
		"responses cut":       {"data: {\"type\":\"response.created\"}\n\n", dialectResponses, agentbus.Usage{}, "before its last event"},
		"long line":           {"data: " + strings.Repeat("x", 2*maxTapped) + "\n\n" + withUse + doneEnd, dialectChat, use, ""},
	} {
		pieces := []int{1, 2, 3, 5, 64, 1 << 30}
		if len(c.stream) > maxTapped {
			pieces = pieces[3:]
		}
		for _, piece := range pieces {
			tp := tap{dialect: c.as}
			held := feedAll(&tp, c.stream, piece)
			err := tp.close()
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%s in pieces of %d: %v, want %q", name, piece, err, c.fails)
			}
			if got := tp.usage.Usage; got != c.usage {
				t.Errorf("%s in pieces of %d: usage %+v, want %+v", name, piece, got, c.usage)
			}
			if tp.done && c.as == dialectChat && strings.Contains(held, "choices") {
				t.Errorf("%s in pieces of %d: held back %q", name, piece, held)
			}
			if tp.done && !strings.ContainsAny(held, "]}\r\n") {
				t.Errorf("%s in pieces of %d: the end of the stream was not held back", name, piece)
			}
		}
	}
}

// feedAll feeds s in pieces and returns what a reader would hold back.
func feedAll(tp *tap, s string, piece int) (held string) {
	for s != "" {
		n := min(piece, len(s))
		at := tp.feed([]byte(s[:n]))
		switch {
		case held != "":
			held += s[:n]
		case at >= 0:
			held = s[at:n]
		}
		s = s[n:]
	}
	return held
}

// FuzzTap: the tap tells the same of a stream wherever it is cut, and holds back
// nothing but its end.
func FuzzTap(f *testing.F) {
	for _, s := range []string{chunk + withUse + doneEnd, strings.ReplaceAll(chunk+doneEnd, "\n", "\r\n"), ":\r\rdata:[DONE]\r", "\xef\xbb\xbfdata: x\ndata: y\n\n"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, piece int) {
		if piece %= 64; piece < 1 {
			piece = 1
		}
		whole, cut := tap{dialect: dialectChat}, tap{dialect: dialectChat}
		feedAll(&whole, s, len(s)+1)
		feedAll(&cut, s, piece)
		a, b := whole.close(), cut.close()
		if (a == nil) != (b == nil) || whole.usage != cut.usage || whole.events != cut.events || whole.done != cut.done {
			t.Fatalf("cut in pieces of %d: %v %+v %d, whole: %v %+v %d", piece, b, cut.usage, cut.events, a, whole.usage, whole.events)
		}
	})
}

// TestUsageFinder: G26, the usage at the top of an answer of any size is found,
// and no other one, wherever its bytes are cut.
func TestUsageFinder(t *testing.T) {
	t.Parallel()
	use := `"usage":{"prompt_tokens":12,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}`
	for name, c := range map[string]struct {
		answer string
		told   bool
	}{
		"last":               {`{"choices":[{"message":{"content":"a"}}],` + use + `}`, true},
		"first":              {`{` + use + `,"choices":[]}`, true},
		"with room":          {"{\n \"id\" : \"x\",\r\n" + strings.Replace(use, ":", " : ", 1) + "\n}\n", true},
		"behind a text":      {`{"text":"say \"usage\":{\"prompt_tokens\":9}, \\",` + use + `}`, true},
		"in a text":          {`{"text":"{\"usage\":{\"prompt_tokens\":9}}"}`, false},
		"further down":       {`{"choices":[{` + use + `}],"x":{` + use + `}}`, false},
		"as a value":         {`{"x":"usage","y":{"prompt_tokens":9}}`, false},
		"another key":        {`{"usages":{"prompt_tokens":9},"usag":{"prompt_tokens":9},"xusage":{"prompt_tokens":9}}`, false},
		"null":               {`{"usage":null,"x":{"prompt_tokens":9}}`, false},
		"a list":             {`{"usage":[{"prompt_tokens":9}]}`, false},
		"cut":                {`{"usage":{"prompt_tokens":9`, false},
		"endless":            {`{"usage":{"x":"` + strings.Repeat("x", maxUsage) + `","prompt_tokens":9}}`, false},
		"no JSON":            {`}}}]"usage":{"prompt_tokens":9}`, false},
		"nothing":            {``, false},
		"null, then told":    {`{"usage":null,` + use + `}`, true},
		"a text of that key": {`{"usage":"x","y":{"prompt_tokens":9}}`, false},
	} {
		for _, piece := range []int{1, 7, 1 << 30} {
			var f usageFinder
			for rest := c.answer; rest != ""; {
				n := min(piece, len(rest))
				f.feed([]byte(rest[:n]))
				rest = rest[n:]
			}
			got := f.usage()
			if got.told() != c.told || c.told && got.Usage != (agentbus.Usage{InputTokens: 12, OutputTokens: 7, CachedTokens: 3}) {
				t.Errorf("%s in pieces of %d: %+v", name, piece, got)
			}
		}
	}
}
