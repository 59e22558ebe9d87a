package gateway

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// maxTapped is how much of one event the tap looks at; what is longer passes,
// but is not read.
const maxTapped = 1 << 20

// A tap watches the bytes of an event stream for what the ledger must know: the
// usage, an error, the end. It parses no event that does not look like one of
// these (G10), and takes CRLF, CR and LF, data over several lines, a BOM,
// comments, and bytes cut anywhere.
type tap struct {
	dialect dialect
	most    int                 // bytes of one event that are looked at; 0: maxTapped
	redact  func(string) string // takes credentials out of the agent's words; nil: nothing to take out
	line    []byte              // the line so far
	event   []byte              // the data of the event so far
	some    bool                // the event has data
	errs    bool                // the event is one of the type error
	cr      bool                // the last byte was a CR: an LF belongs to it
	begun   bool                // past a BOM
	events  int                 // with data
	usage   reported            // what the last event told that told one
	counts  bool                // what is said is counted, in bytes
	said    int
	mute    bool        // looked for from the start: nothing was said yet, and no tool called
	failure string      // the error that the agent told under status 200
	binding a2a.Binding // of dialectA2A, whose events told is shown
	told    func([]byte, *a2a.Frame)
	task    string // that the events of dialectA2A are about: no other ends the stream
	lines   int    // of data in the event so far
	read    bool   // told was shown the event already
	seen    int    // how much of the last bytes belongs to events that were looked at
	blank   bool   // the last line was blank: the next event has not begun
	done    bool   // the event that ends a stream of this dialect was seen
	ended   bool   // and so was the blank line behind it
}

// feed takes the next bytes. It returns where in b the event that ends the
// stream begins, or -1: bytes from there on wait for the settlement.
func (t *tap) feed(b []byte) int {
	hold, lineAt := -1, 0
	for i := t.looked(0); i < len(b); {
		if t.cr && b[i] == '\n' {
			t.cr = false
			i = t.looked(i + 1)
			lineAt = i
			continue
		}
		t.cr = false
		n := lineEnd(b[i:])
		if n < 0 {
			if t.keep(b[i:]); hold < 0 && t.ending() {
				hold = lineAt // a last line without an end
			}
			break
		}
		line, wasDone := b[i:i+n], t.done
		if len(t.line) > 0 {
			t.keep(line)
			line = t.line
		}
		t.endLine(line)
		if t.done && !wasDone {
			hold = lineAt
		}
		t.cr = b[i+n] == '\r'
		i = t.looked(i + n + 1)
		lineAt = i
	}
	return hold
}

// looked notes that the last bytes are read up to i, between two lines, and
// returns i.
func (t *tap) looked(i int) int {
	if i == 0 || !t.some || t.read {
		t.seen = i
	}
	return i
}

// lineEnd returns where the first CR or LF of b stands, or -1.
func lineEnd(b []byte) int {
	n := bytes.IndexByte(b, '\n')
	if n >= 0 {
		b = b[:n]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return n
}

func (t *tap) keep(b []byte) {
	if t.blank = false; len(t.line)+len(b) > or(t.most, maxTapped) {
		t.mute = false // nobody knows
		return
	}
	t.line = append(t.line, b...)
}

// ending reports whether the line so far is the end of a chat's stream.
func (t *tap) ending() bool {
	if len(t.line) > 2*len("data: [DONE]") {
		return false
	}
	data, ok := bytes.CutPrefix(t.line, dataField)
	return ok && t.dialect == dialectChat && !t.some && isDone(data)
}

// isDone reports whether data ends a stream of chat completions. Clients do not mind
// spaces around the mark.
func isDone(data []byte) bool { return bytes.Equal(bytes.TrimSpace(data), doneMark) }

var (
	bom       = []byte("\xef\xbb\xbf")
	dataField = []byte("data:")
	typeField = []byte("event:")
	errorType = []byte("error")
	doneMark  = []byte("[DONE]")
	usageKey  = []byte(`"usage"`)
	response  = []byte(`"response.`)

	// Parts of the names "usage" and "error", looked for in every event before it is
	// parsed. They begin with letters that are rarer in JSON than quotes and vowels
	// are, which makes the search two to three times faster.
	usageMark = []byte(`usage"`)
	errorMark = []byte(`rror"`)
)

// endLine takes a whole line, which may be the one kept so far.
func (t *tap) endLine(line []byte) {
	t.line = t.line[:0]
	if !t.begun {
		t.begun = true
		line = bytes.TrimPrefix(line, bom)
	}
	if t.blank = len(line) == 0; t.blank {
		t.endEvent()
		return
	}
	data, ok := bytes.CutPrefix(line, dataField)
	if !ok { // a comment, or another field
		if kind, is := bytes.CutPrefix(line, typeField); is {
			t.errs = bytes.Equal(bytes.TrimPrefix(kind, []byte(" ")), errorType)
		}
		return
	}
	data = bytes.TrimPrefix(data, []byte(" "))
	if t.some && len(t.event) < or(t.most, maxTapped) {
		t.event = append(t.event, '\n')
	}
	if len(t.event)+len(data) <= or(t.most, maxTapped) {
		t.event = append(t.event, data...)
	} else {
		t.mute = false // as above
	}
	t.some = true
	t.look()
}

// look tells the end of the stream as soon as its line is whole.
func (t *tap) look() {
	switch {
	case t.dialect == dialectA2A:
		if t.lines++; t.lines <= maxFrameLines { // more are read once, at their end
			t.frame()
		}
	case t.dialect == dialectChat:
		t.done = t.done || isDone(t.event)
	case t.dialect == dialectResponses && bytes.Contains(t.event, response):
		switch gjson.GetBytes(t.event, "type").Str {
		case "response.completed", "response.incomplete":
			t.done = true
		case "response.failed":
			t.fail(gjson.GetBytes(t.event, "response.error"))
		}
	}
}

func (t *tap) endEvent() {
	if !t.some {
		t.errs = false
		return
	}
	t.events++
	if t.dialect == dialectA2A {
		t.frame()
		t.lines, t.read = 0, false
		t.event, t.some, t.ended = t.event[:0], false, t.done
		return
	}
	t.mute = t.mute && !speaks(t.event)
	if t.counts {
		t.said += chatBytes(t.event, "delta")
	}
	if u := parseUsage(t.event); u.told() { // an event may say that it tells none
		t.usage = u
	}
	if t.dialect != dialectOther && (t.errs || bytes.Contains(t.event, errorMark)) {
		t.readError()
	}
	t.event, t.some, t.errs, t.ended = t.event[:0], false, false, t.done
}

// readError takes the error that an event tells, if it does: one that has it as a member,
// or one of the type error, which may be it.
func (t *tap) readError() {
	e := gjson.GetBytes(t.event, "error")
	switch {
	case e.IsObject() || e.Type == gjson.String:
		t.fail(e)
	case t.errs && rawjson.Valid(t.event):
		t.fail(gjson.ParseBytes(t.event))
	case t.errs:
		t.fail(gjson.Result{Type: gjson.String, Str: string(t.event)})
	}
}

// maxFrameLines is how many lines of data an event of A2A may have for its end
// to be told at its last line.
const maxFrameLines = 4

// frame reads the event so far as one of A2A, once it is whole.
func (t *tap) frame() {
	if t.read {
		return
	}
	f, whole := a2a.ReadFrame(t.event, t.binding)
	if t.read = whole; !whole {
		return
	}
	own := len(f.Tasks) == 0
	if !own {
		t.task = or(t.task, f.Tasks[0].ID)
		own = f.Tasks[0].ID == t.task
	}
	t.done = t.done || f.End && own
	t.told(t.event, &f)
}

// between reports whether the last event is over and the next one has not begun.
func (t *tap) between() bool { return t.blank && !t.cr || t.events == 0 && !t.begun }

func (t *tap) fail(e gjson.Result) {
	message := e.Get("message").String()
	if message == "" {
		message = e.String()
	}
	if t.redact != nil {
		message = t.redact(message)
	}
	t.failure = "the agent reported an error in its stream: " + plain(message, 200)
}

// plain makes an agent's words fit for one of our messages: one short line
// without an @name that a relay could take for a mention.
func plain(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		if r == '@' {
			return '·'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// close ends the stream: it fails when the agent told an error, or when the
// event that ends a whole stream is missing (G15).
func (t *tap) close() error {
	if len(t.line) > 0 {
		t.endLine(t.line) // a missing last line end
	}
	t.endEvent() // a missing last blank line
	switch {
	case t.failure != "":
		return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: t.failure, Explain: &agentbus.Explain{Rule: "G15", Next: "send the same turn again"}}
	case t.dialect != dialectOther && !t.done:
		return &agentbus.Error{
			Code: agentbus.CodeAgentUnavailable, Message: "the agent's stream ended before its last event",
			Explain: &agentbus.Explain{Rule: "G15", Observed: t.events, Next: "send the same turn again"},
		}
	}
	return nil
}

// usageOr returns the usage that the stream told, or an estimate: a token an
// event, which is how agents stream, where what was said is not counted.
func (t *tap) usageOr(x *exchange) agentbus.Usage {
	return x.used(t.usage, func() agentbus.Usage {
		if t.counts {
			return x.bridgedUsage(t.said)
		}
		return estimate(x, int64(max(t.events-1, 0)))
	})
}

// errorEvent is the event by which the caller of a stream reads that it failed.
func (x *exchange) errorEvent(err error) []byte {
	b := []byte("\n\n") // the blank line ends whatever the agent left open
	if e := x.envelope; e != nil {
		return append(b, a2a.ErrorOf(err).Event(e.binding, e.id(x.body))...)
	}
	b = append(append(b, "data: "...), httpx.ErrorBody(x.lineage, err)...)
	return append(b, "\n\n"...)
}
