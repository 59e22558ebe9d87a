package a2a

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/agentbus/agentbus/internal/rawjson"
)

// MaxFrame is the longest data line of a stream that is read, in bytes. What is
// longer passes and is not read (A11).
const MaxFrame = 10 << 20

// A Frame is what an answer, or an event of a stream, tells the bus.
type Frame struct {
	Tasks    []TaskRef // that it names, the one that it is about first
	End      bool      // nothing follows it: a message, an error, or a task that is over or waits
	Err      *Error    // it is an error
	Metadata [][]byte  // where agents tell what they used, as JSON objects
	words    words     // for [Said.HearFrame]
}

// A TaskRef names a task and the context it belongs to.
type TaskRef struct{ ID, Context string }

// ReadFrame reads an answer or an event of either version, without decoding it.
// What is no object tells nothing; valid reports whether it is JSON at all.
func ReadFrame(data []byte, b Binding) (f Frame, valid bool) {
	if !rawjson.Valid(data) {
		return f, false
	}
	root := node(data[rawjson.Space(data, 0):])
	if !root.isObject() {
		return f, true
	}
	var found [2]node
	root.pick(found[:], "error", "result")
	switch e := found[0]; {
	case e != nil && e[0] != 'n':
		f.Err, _ = ReadError(data)
		f.End = f.Err != nil
	case b == JSONRPC:
		f.value(found[1])
	default:
		f.value(root)
	}
	return f, true
}

// A node is a value in valid JSON, as it stands there; nil: there is none.
type node []byte

func (n node) isObject() bool { return len(n) > 0 && n[0] == '{' }

// text returns the string that n is; "" when it is none.
func (n node) text() string {
	if len(n) == 0 || n[0] != '"' {
		return ""
	}
	return rawjson.Text(n)
}

// textLen is how long text is.
func (n node) textLen() int {
	if len(n) > 1 && n[0] == '"' && bytes.IndexByte(n, '\\') < 0 {
		return len(n) - len(`""`)
	}
	return len(n.text())
}

// pick reads the members of an object that have these names, the first of each,
// in one pass: answers are long.
func (n node) pick(into []node, names ...string) {
	if !n.isObject() {
		return
	}
	rawjson.Members(n, 0, func(m rawjson.Member) bool {
		for i, name := range names {
			if into[i] == nil && string(m.Key) == name {
				into[i] = n[m.At:m.Over]
			}
		}
		return true
	})
}

// value reads what stands under result, or is the whole of a REST answer.
func (f *Frame) value(v node) {
	var found [8]node
	v.pick(found[:], members[:]...)
	kind, tasks, status, id := found[4], found[5], found[6], found[7]
	f.words = wordsOf(v, found[:len(kinds)])
	switch { // an answer of A2A 1.0 is wrapped in its kind
	case kind != nil:
	case found[0].isObject():
		f.task(found[0])
		return
	case found[1].isObject():
		f.message(found[1])
		return
	case found[2].isObject():
		f.status(found[2])
		return
	case found[3].isObject():
		f.artifact(found[3])
		return
	}
	switch {
	case len(tasks) > 0 && tasks[0] == '[': // of a list
		rawjson.Elements(tasks, 0, func(at, over int) bool {
			var named [2]node
			tasks[at:over].pick(named[:], "id", "contextId")
			f.see(named[0], named[1])
			return true
		})
	case f.words.kind == "message":
		f.message(v)
	case f.words.kind == "status-update":
		f.status(v)
	case f.words.kind == "artifact-update":
		f.artifact(v)
	case status.isObject() && id.text() != "":
		f.task(v)
	}
}

func (f *Frame) see(id, context node) {
	if id := id.text(); id != "" {
		f.Tasks = append(f.Tasks, TaskRef{id, context.text()})
	}
}

func (f *Frame) tell(metadata node) {
	if metadata.isObject() {
		f.Metadata = append(f.Metadata, bytes.Clone(metadata))
	}
}

// turn reads a status, and returns the metadata of its message.
func (f *Frame) turn(status node) (told node) {
	var found [2]node
	status.pick(found[:], "state", "message")
	f.End = ends(found[0].text())
	var metadata [1]node
	found[1].pick(metadata[:], "metadata")
	return metadata[0]
}

func (f *Frame) task(t node) {
	var found [4]node
	t.pick(found[:], "id", "contextId", "status", "metadata")
	f.see(found[0], found[1])
	told := f.turn(found[2])
	f.tell(found[3])
	f.tell(told)
}

func (f *Frame) message(m node) {
	var found [3]node
	m.pick(found[:], "taskId", "contextId", "metadata")
	f.see(found[0], found[1])
	f.End = true
	f.tell(found[2])
}

func (f *Frame) status(u node) {
	var found [5]node
	u.pick(found[:], "taskId", "contextId", "status", "metadata", "final")
	f.see(found[0], found[1])
	told := f.turn(found[2])
	f.End = f.End || len(found[4]) > 0 && found[4][0] == 't'
	f.tell(found[3])
	f.tell(told)
}

func (f *Frame) artifact(u node) {
	var found [3]node
	u.pick(found[:], "taskId", "contextId", "metadata")
	f.see(found[0], found[1])
	f.tell(found[2])
}

// ends reports whether a stream ends with a task in this state: it is over, or
// waits for somebody. Both versions spell their states, and 0.3
// spells one in two ways.
func ends(state string) bool {
	switch strings.TrimPrefix(strings.ToUpper(strings.ReplaceAll(state, "-", "_")), "TASK_STATE_") {
	case "COMPLETED", "FAILED", "CANCELED", "CANCELLED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED":
		return true
	}
	return false
}

// TakesWholeError reports whether the caller reads an error as a whole answer where
// it asks for a stream: clients of 1.0 on httpx do, which are the SDK for Python and
// the TCK. The TCK knows it by nothing else, so that no event may be made of it for
// them (A14, A18).
func TakesWholeError(r *http.Request) bool {
	if !strings.HasPrefix(r.UserAgent(), "python-httpx") {
		return false
	}
	version := r.Header.Get("A2A-Version")
	if version == "" {
		version = r.URL.Query().Get("A2A-Version")
	}
	return isVersion1(version)
}

// Event returns a whole answer as the one event of a stream (A14).
func Event(answer []byte) []byte {
	var b bytes.Buffer
	b.WriteString("data: ")
	if json.Compact(&b, answer) != nil { // no JSON: its lines are data all the same
		return append(append([]byte("data: "), bytes.ReplaceAll(bytes.TrimSpace(answer), []byte("\n"), []byte("\ndata: "))...), "\n\n"...)
	}
	b.WriteString("\n\n")
	return b.Bytes()
}

// A StreamID gives the events of a stream another JSON-RPC id, for a duplicate
// of the call whose answer it is. Pieces may be cut anywhere.
type StreamID struct {
	ID    []byte
	event []byte // the event so far
	blank bool   // so is its line so far
	cr    bool   // the last byte was a CR: an LF belongs to it
}

// Feed returns what is to be sent of the stream so far: whole events.
func (s *StreamID) Feed(b []byte) []byte {
	var out []byte
	for _, c := range b {
		s.event = append(s.event, c)
		switch {
		case c == '\n' && s.cr && len(s.event) > 1: // it ends the line that the CR has ended
		case (c == '\n' || c == '\r') && s.blank:
			out = append(out, s.respelled()...)
			s.event = s.event[:0]
		default:
			s.blank = c == '\n' || c == '\r'
		}
		s.cr = c == '\r'
	}
	return out
}

// Flush returns the last event of a stream that ends without a blank line.
func (s *StreamID) Flush() []byte {
	out := s.respelled()
	s.event = nil
	return out
}

// respelled returns the event with its id replaced. Its data may be over several lines.
func (s *StreamID) respelled() []byte {
	lines := dataLines(s.event)
	if len(lines) == 0 {
		return s.event
	}
	var data [][]byte
	for _, at := range lines {
		data = append(data, s.event[at[0]:at[1]])
	}
	data = bytes.Split(WithID(bytes.Join(data, []byte("\n")), s.ID), []byte("\n"))
	if len(data) != len(lines) {
		return s.event
	}
	out, from := []byte(nil), 0
	for n, at := range lines {
		out, from = append(append(out, s.event[from:at[0]]...), data[n]...), at[1]
	}
	return append(out, s.event[from:]...)
}

// dataLines returns from where to where an event has data, for each line of it.
func dataLines(event []byte) (at [][2]int) {
	i := 0
	if bytes.HasPrefix(event, []byte("\xef\xbb\xbf")) { // a stream may begin so
		i = 3
	}
	for i < len(event) {
		over := len(event)
		if n := bytes.IndexAny(event[i:], "\r\n"); n >= 0 {
			over = i + n
		}
		if bytes.HasPrefix(event[i:over], []byte("data:")) {
			at = append(at, [2]int{i + len("data:"), over})
		}
		i = over + 1
	}
	return at
}
