package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/sse"
)

// event is a copy of what Next returned; Err is set on the last one.
type event struct{ Type, ID, Data, Err string }

func readAll(r io.Reader, limit int) []event {
	var all []event
	events := sse.NewReader(r, limit)
	for {
		e, err := events.Next()
		got := event{Type: e.Type, ID: e.ID, Data: string(e.Data)}
		if err != nil {
			got.Err = err.Error()
		}
		all = append(all, got)
		if err != nil && !errors.Is(err, sse.ErrCut) {
			return all
		}
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	eof := event{Err: "EOF"}
	for name, c := range map[string]struct {
		in   string
		want []event
	}{
		"nothing":                      {"", []event{eof}},
		"LF":                           {"data: a\n\ndata: b\n\n", []event{{Data: "a"}, {Data: "b"}, eof}},
		"CRLF":                         {"data: a\r\n\r\ndata: b\r\n\r\n", []event{{Data: "a"}, {Data: "b"}, eof}},
		"CR":                           {"data: a\r\rdata: b\r\r", []event{{Data: "a"}, {Data: "b"}, eof}},
		"mixed ends":                   {"data: a\r\n\ndata: b\r\rdata: c\n\r", []event{{Data: "a"}, {Data: "b"}, {Data: "c"}, eof}},
		"byte order mark":              {"\xef\xbb\xbfdata: a\n\n", []event{{Data: "a"}, eof}},
		"only the first mark counts":   {"data: a\n\n\xef\xbb\xbfdata: b\n\n", []event{{Data: "a"}, eof}},
		"several lines":                {"data: a\ndata:\ndata:b\n\n", []event{{Data: "a\n\nb"}, eof}},
		"one space is stripped":        {"data:  a \n\n", []event{{Data: " a "}, eof}},
		"no colon":                     {"data\n\n", []event{{}, eof}},
		"empty data is an event":       {"data:\n\n", []event{{}, eof}},
		"comments":                     {": hi\n\n:\ndata: a\n: there\n\n", []event{{Data: "a"}, eof}},
		"without data it is none":      {"event: ping\n\ndata: a\n\n", []event{{Data: "a"}, eof}},
		"type":                         {"event: x\ndata: a\n\ndata: b\n\n", []event{{Type: "x", Data: "a"}, {Data: "b"}, eof}},
		"the id stays":                 {"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []event{{ID: "7", Data: "a"}, {ID: "7", Data: "b"}, {Data: "c"}, eof}},
		"an id with NUL is none":       {"id: 7\x00\ndata: a\n\n", []event{{Data: "a"}, eof}},
		"other fields":                 {"retry: 10\nfoo: bar\ndata: a\n\n", []event{{Data: "a"}, eof}},
		"cut before the blank line":    {"data: a\n\ndata: b\n", []event{{Data: "a"}, {Data: "b", Err: "stream ended inside an event"}, eof}},
		"cut inside a line":            {"data: a\n\ndata: b", []event{{Data: "a"}, {Data: "b", Err: "stream ended inside an event"}, eof}},
		"cut inside a name":            {"data: a\n\nda", []event{{Data: "a"}, {Err: "stream ended inside an event"}, eof}},
		"a comment at the end":         {"data: a\n\n: bye", []event{{Data: "a"}, eof}},
		"UTF-8":                        {"data: é✓\n\n", []event{{Data: "é✓"}, eof}},
		"a CR that ends the last line": {"data: a\r\n\r", []event{{Data: "a"}, eof}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, readAll(strings.NewReader(c.in), 0)); diff != "" {
				t.Errorf("whole (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.want, readAll(iotest.OneByteReader(strings.NewReader(c.in)), 0)); diff != "" {
				t.Errorf("byte by byte (-want +got)\n%s", diff)
			}
		})
	}
}

func TestReaderIsBounded(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"line":    "data: " + strings.Repeat("x", 1001),
		"event":   strings.Repeat("data: "+strings.Repeat("x", 99)+"\n", 11),
		"comment": ":" + strings.Repeat("x", 2000),
	} {
		events := readAll(strings.NewReader(in), 1000)
		if diff := cmp.Diff([]event{{Err: sse.ErrTooLarge.Error()}}, events); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	r := sse.NewReader(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 9)+"\n", 3)+"\ndata: a\n\n"), 20)
	for range 2 {
		if e, err := r.Next(); !errors.Is(err, sse.ErrTooLarge) {
			t.Errorf("after an event too large: got %q, %v", e.Data, err)
		}
	}
	fits := readAll(strings.NewReader("data: "+strings.Repeat("x", 1000)+"\n\n"), 1000)
	if len(fits) != 2 || len(fits[0].Data) != 1000 {
		t.Errorf("an event of exactly the limit was not read: %.80v", fits)
	}
}

// endless is a stream without a line end.
type endless struct{ given int }

func (e *endless) Read(p []byte) (int, error) {
	e.given += len(p)
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestReaderStopsReadingAtItsLimit(t *testing.T) {
	t.Parallel()
	src := new(endless)
	if got := readAll(src, 10_000); got[0].Err != sse.ErrTooLarge.Error() {
		t.Errorf("got %+v", got)
	}
	if src.given > 64<<10 {
		t.Errorf("read %d bytes of a line that may have 10000", src.given)
	}
}

func TestReaderReturnsTheErrorOfItsSource(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := sse.NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 0)
	if e, err := r.Next(); err != nil || string(e.Data) != "a" {
		t.Fatalf("got %q, %v", e.Data, err)
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, broken) {
			t.Errorf("got %v, want the source's error", err)
		}
	}
}

// FuzzReader: however the input is cut, the events are the same.
func FuzzReader(f *testing.F) {
	f.Add("data: a\r\n\r\nid: 1\nevent: e\ndata: b\ndata: é\n\n", uint16(7))
	f.Add("\xef\xbb\xbfdata: a\r\rdata: b\n", uint16(2))
	f.Add(": comment\n\ndata\n\ndata: [DONE]", uint16(1))
	f.Fuzz(func(t *testing.T, in string, cut uint16) {
		const limit = 64
		want := readAll(strings.NewReader(in), limit)
		at := min(int(cut), len(in))
		split := io.MultiReader(strings.NewReader(in[:at]), strings.NewReader(in[at:]))
		if diff := cmp.Diff(want, readAll(split, limit)); diff != "" {
			t.Errorf("cut at %d (-whole +cut)\n%s", at, diff)
		}
		if diff := cmp.Diff(want, readAll(iotest.OneByteReader(strings.NewReader(in)), limit)); diff != "" {
			t.Errorf("byte by byte (-whole +cut)\n%s", diff)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	stream := strings.Repeat(`data: {"choices":[{"delta":{"content":"hello"}}]}`+"\n\n", 100)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		r := sse.NewReader(strings.NewReader(stream), 0)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
}
