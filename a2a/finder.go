package a2a

import "github.com/agentbus/agentbus/internal/rawjson"

// A TaskFinder finds the tasks that an answer names which is too large to be read
// whole, while it passes in pieces. It keeps nothing else of it. It is for answers
// of one task, or of a message: it does not look into lists.
type TaskFinder struct {
	binding Binding
	depth   int
	keys    [finderDepth + 1]string // of the objects that are open, from the outermost
	lists   [finderDepth + 1]bool   // what is open there is a list
	value   bool                    // what comes is a value
	quoted  bool                    // inside a string
	escaped bool                    // behind a backslash of one
	text    []byte                  // the string so far, with its first quote; nil: it does not count

	found   []string // ids that nobody has taken yet
	context string
	named   bool
}

const (
	finderDepth = 3       // how deep an answer names its task: result, task, id
	maxFound    = 4 << 10 // bytes of an id that is found
)

// NewTaskFinder returns a finder for answers of a binding.
func NewTaskFinder(b Binding) *TaskFinder { return &TaskFinder{binding: b} }

// Named reports whether the answer has told so far whose task it is of, or that it
// is a message.
func (f *TaskFinder) Named() bool { return f.named }

// Feed takes the next piece, and returns the tasks that are named in it.
func (f *TaskFinder) Feed(b []byte) (tasks []TaskRef) {
	for _, c := range b {
		if f.quoted {
			f.inString(c)
		} else {
			f.outside(c)
		}
	}
	for _, id := range f.found {
		tasks = append(tasks, TaskRef{id, f.context})
	}
	f.found = nil
	return tasks
}

func (f *TaskFinder) inString(c byte) {
	if f.text != nil {
		if f.text = append(f.text, c); len(f.text) > maxFound {
			f.text = nil
		}
	}
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped = true
	case c == '"':
		f.quoted = false
		f.ended()
	}
}

func (f *TaskFinder) outside(c byte) {
	counts := f.depth <= finderDepth
	switch c {
	case '"':
		if f.quoted, f.text = true, nil; counts {
			f.text = append(make([]byte, 0, 64), c)
		}
	case ':':
		f.value = true
	case ',':
		f.value = false
	case '{', '[':
		if f.depth, f.value = f.depth+1, false; f.depth <= finderDepth {
			f.keys[f.depth], f.lists[f.depth] = "", c == '['
		}
	case '}', ']':
		f.depth, f.value = max(f.depth-1, 0), false
	}
}

// ended takes a string that is at its end.
func (f *TaskFinder) ended() {
	d := f.depth
	if f.text == nil || d == 0 || d > finderDepth {
		return
	}
	for i := 1; i <= d; i++ {
		if f.lists[i] {
			return
		}
	}
	text := rawjson.Text(f.text)
	if !f.value {
		f.keys[d] = text
		return
	}
	keys := f.keys[1 : d+1]
	if f.binding == JSONRPC {
		if keys[0] != "result" {
			return
		}
		keys = keys[1:]
	}
	f.tell(keys, text)
}

// tell takes a text of the result, by the keys that lead to it.
func (f *TaskFinder) tell(keys []string, text string) {
	name, within := "", ""
	switch len(keys) {
	case 1: // of A2A 0.3, or a task as it is
		name = keys[0]
	case 2:
		within, name = keys[0], keys[1]
		if within != "task" && within != "message" && within != "statusUpdate" && within != "artifactUpdate" {
			return
		}
	}
	switch name {
	case "id", "taskId":
		if text != "" && (name == "taskId" || within == "" || within == "task") {
			f.found, f.named = append(f.found, text), true
		}
	case "contextId":
		f.context = text
	case "messageId":
		f.named = f.named || within != "task"
	}
}
