package gateway

import (
	"strings"
	"testing"
)

// G21, G22: the end of a stream is stored behind what is pending of it, and
// duplicates read no byte of it before it is published.
func TestRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, end, want string
		batched, room   int
		most            int64
	}{
		"with room":    {body: "0123456789", batched: 4, room: 8, end: "end", want: "456789end", most: 100},
		"without room": {body: "0123456789", batched: 4, end: "end", want: "456789end", most: 100},
		"all stored":   {body: "0123456789", batched: 10, room: 8, end: "end", want: "end", most: 100},
		"only an end":  {end: "end", want: "end", most: 100},
		"not kept":     {body: "0123456789", room: 8, end: "end", want: "end", most: 12},
	} {
		f := &flight{body: append(make([]byte, 0, len(c.body)+c.room), c.body...)}
		a := &answer{gateway: &Gateway{cfg: Config{MaxReply: c.most}}, exchange: &exchange{flight: f}, batched: c.batched, total: int64(len(c.body) + len(c.end))}
		if got := string(a.rest([]byte(c.end))); got != c.want {
			t.Errorf("%s: %q is stored, want %q", name, got, c.want)
		}
		if got := string(f.view(0).body); got != c.body {
			t.Errorf("%s: a duplicate reads %q, want %q", name, got, c.body)
		}
		f.publish([]byte(c.end), c.most)
		if got := string(f.view(0).body); !strings.HasPrefix(c.body+c.end, got) || !f.over && got != c.body+c.end {
			t.Errorf("%s: a duplicate reads %q in the end", name, got)
		}
	}
}
