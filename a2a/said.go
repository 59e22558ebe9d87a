package a2a

import (
	"github.com/agentbus/agentbus/internal/rawjson"
)

// A Said adds up how many bytes an agent says: the same for an answer that comes
// whole and for one that is streamed (G26). What goes around it, such as the history of
// a task and the frames of a stream, is no part of it. The zero Said has heard nothing.
type Said struct {
	artifacts map[string]int
	status    int // the message of the last status
	message   int
	others    int // pieces of artifacts that are not told apart any more
}

// maxSaid is how many artifacts of a task are told apart.
const maxSaid = 1024

// Hear adds a whole answer, or the next event of a stream. data is valid JSON.
func (s *Said) Hear(data []byte, b Binding) {
	root := node(data[rawjson.Space(data, 0):])
	if b == JSONRPC {
		var result [1]node
		root.pick(result[:], "result")
		root = result[0]
	}
	var found [5]node
	root.pick(found[:], kinds...)
	s.add(wordsOf(root, found[:]))
}

// HearFrame is Hear for data that f was read from, and that is as it was then.
func (s *Said) HearFrame(f *Frame, data []byte, b Binding) {
	if f.words.of == nil {
		s.Hear(data, b)
		return
	}
	s.add(f.words)
}

// words are what an answer or an event says, and as what; nil: nothing is found.
type words struct {
	of   node
	kind string
}

// members are what is read of an answer. The first are kinds: what answers of A2A
// 1.0 stand under, and then what those of 0.3 call themselves by.
var (
	members = [...]string{"task", "message", "statusUpdate", "artifactUpdate", "kind", "tasks", "status", "id"}
	kinds   = members[:5]
)

// wordsOf returns where the words of an answer stand, of which these are the kinds.
func wordsOf(answer node, found []node) words {
	if found[4] != nil { // of 0.3
		return words{answer, found[4].text()}
	}
	for i, kind := range [...]string{"task", "message", "status-update", "artifact-update"} {
		if found[i].isObject() {
			return words{found[i], kind}
		}
	}
	return words{}
}

func (s *Said) add(w words) {
	var found [5]node
	w.of.pick(found[:], "artifacts", "status", "parts", "artifact", "append")
	switch w.kind {
	case "task":
		if len(found[0]) > len("[]") { // a task that leaves its artifacts out takes none of them back
			s.artifacts, s.others = nil, 0
		}
		found[0].each(func(one node) { s.artifact(one, false) })
		s.turn(found[1])
	case "message":
		s.message = partBytes(found[2])
	case "status-update":
		s.turn(found[1])
	case "artifact-update":
		s.artifact(found[3], len(found[4]) > 0 && found[4][0] == 't')
	}
}

func (s *Said) turn(status node) {
	var message, parts [1]node
	status.pick(message[:], "message")
	message[0].pick(parts[:], "parts")
	s.status = partBytes(parts[0])
}

func (s *Said) artifact(one node, goesOn bool) {
	var found [2]node
	one.pick(found[:], "artifactId", "parts")
	id, n := found[0].text(), partBytes(found[1])
	_, known := s.artifacts[id]
	switch {
	case !known && len(s.artifacts) >= maxSaid:
		s.others += n
	case goesOn && known:
		s.artifacts[id] += n
	default:
		if s.artifacts == nil {
			s.artifacts = map[string]int{}
		}
		s.artifacts[id] = n
	}
}

// Len returns how many bytes were said.
func (s *Said) Len() int {
	n := s.status + s.message + s.others
	for _, artifact := range s.artifacts {
		n += artifact
	}
	return n
}

// SentBytes returns how many bytes the message of the request says that [Peek] has
// read; all of its params where it has no parts. body is as it was read.
func (c *Call) SentBytes(body []byte) int {
	var parts [1]node
	if c.messageKey == "" {
		node(body[c.message.At:c.message.Over]).pick(parts[:], "parts")
	}
	if parts[0] == nil {
		return c.params.Over - c.params.At
	}
	return partBytes(parts[0])
}

// each calls use with the elements of an array.
func (n node) each(use func(node)) {
	if len(n) == 0 || n[0] != '[' {
		return
	}
	rawjson.Elements(n, 0, func(at, over int) bool {
		use(n[at:over])
		return true
	})
}

// partBytes returns what parts hold: of text its bytes, of anything else the JSON.
func partBytes(parts node) (n int) {
	parts.each(func(part node) {
		var found [5]node
		part.pick(found[:], "text", "raw", "data", "url", "file")
		for i, content := range found {
			if i == 0 && content != nil {
				n += content.textLen()
				continue
			}
			n += len(content)
		}
	})
	return n
}
