package a2a

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
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
}

// A TaskRef names a task and the context it belongs to.
type TaskRef struct{ ID, Context string }

// ReadFrame reads an answer or an event of either version, without decoding it.
// What is none tells nothing.
func ReadFrame(data []byte, b Binding) (f Frame) {
	root := gjson.ParseBytes(data)
	if !root.IsObject() {
		return f
	}
	var found [2]gjson.Result
	pick(root, found[:], "error", "result")
	switch e := found[0]; {
	case e.Exists() && e.Type != gjson.Null:
		f.Err, _ = ReadError(data)
		f.End = f.Err != nil
	case b == JSONRPC:
		f.value(found[1])
	default:
		f.value(root)
	}
	return f
}

// pick reads the members of an object that have these names, the first of each,
// in one pass: answers are long.
func pick(object gjson.Result, into []gjson.Result, names ...string) {
	if !object.IsObject() {
		return
	}
	object.ForEach(func(key, value gjson.Result) bool {
		if i := slices.Index(names, key.Str); i >= 0 && !into[i].Exists() {
			into[i] = value
		}
		return true
	})
}

// value reads what stands under result, or is the whole of a REST answer.
func (f *Frame) value(v gjson.Result) {
	var found [8]gjson.Result
	pick(v, found[:], "task", "message", "statusUpdate", "artifactUpdate", "kind", "tasks", "status", "id")
	kind, tasks, status, id := found[4], found[5], found[6], found[7]
	switch { // an answer of A2A 1.0 is wrapped in its kind
	case kind.Exists():
	case found[0].IsObject():
		f.task(found[0])
		return
	case found[1].IsObject():
		f.message(found[1])
		return
	case found[2].IsObject():
		f.status(found[2])
		return
	case found[3].IsObject():
		f.artifact(found[3])
		return
	}
	switch {
	case tasks.IsArray(): // of a list
		for _, t := range tasks.Array() {
			f.see(t.Get("id").Str, t.Get("contextId").Str)
		}
	case kind.Str == "message":
		f.message(v)
	case kind.Str == "status-update":
		f.status(v)
	case kind.Str == "artifact-update":
		f.artifact(v)
	case status.IsObject() && id.Type == gjson.String:
		f.task(v)
	}
}

func (f *Frame) see(id, context string) {
	if id != "" {
		f.Tasks = append(f.Tasks, TaskRef{id, context})
	}
}

func (f *Frame) tell(metadata ...gjson.Result) {
	for _, m := range metadata {
		if m.IsObject() {
			f.Metadata = append(f.Metadata, []byte(m.Raw))
		}
	}
}

func (f *Frame) task(t gjson.Result) {
	f.see(t.Get("id").Str, t.Get("contextId").Str)
	f.End = ends(t.Get("status.state").Str)
	f.tell(t.Get("metadata"), t.Get("status.message.metadata"))
}

func (f *Frame) message(m gjson.Result) {
	f.see(m.Get("taskId").Str, m.Get("contextId").Str)
	f.End = true
	f.tell(m.Get("metadata"))
}

func (f *Frame) status(u gjson.Result) {
	f.see(u.Get("taskId").Str, u.Get("contextId").Str)
	f.End = ends(u.Get("status.state").Str) || u.Get("final").Bool()
	f.tell(u.Get("metadata"), u.Get("status.message.metadata"))
}

func (f *Frame) artifact(u gjson.Result) {
	f.see(u.Get("taskId").Str, u.Get("contextId").Str)
	f.tell(u.Get("metadata"))
}

// ends reports whether a stream ends with a task in this state: it is over, or
// waits for somebody. Both versions spell their states.
func ends(state string) bool {
	switch strings.TrimPrefix(strings.ToUpper(strings.ReplaceAll(state, "-", "_")), "TASK_STATE_") {
	case "COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED":
		return true
	}
	return false
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
	ID   []byte
	line []byte // the line so far
}

// Feed returns what is to be sent of the stream so far.
func (s *StreamID) Feed(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			s.line = append(s.line, b...)
			break
		}
		s.line = append(s.line, b[:n]...)
		out, b = append(out, s.respelled()...), b[n:]
		s.line = s.line[:0]
	}
	return out
}

// Flush returns the last line of a stream that ends without a line end.
func (s *StreamID) Flush() []byte {
	out := s.respelled()
	s.line = nil
	return out
}

// respelled returns the line with its id replaced.
func (s *StreamID) respelled() []byte {
	data, ok := bytes.CutPrefix(s.line, []byte("data:"))
	if !ok {
		return s.line
	}
	text := bytes.TrimLeft(data, " ")
	end := bytes.TrimRight(text, "\r\n")
	out := append([]byte("data:"), data[:len(data)-len(text)]...)
	out = append(out, WithID(end, s.ID)...)
	return append(out, text[len(end):]...)
}
