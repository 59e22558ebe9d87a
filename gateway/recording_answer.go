package gateway

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/sse"
)

// A passed is an answer as far as the gateway holds it, until the attempt ends and
// it is recorded.
type passed struct {
	some    bool
	stream  bool
	encoded bool
	size    int64
	begun   []byte // the beginning of it, at least; of one that is not held nothing
	rest    []byte // what comes behind that
}

// answers notes what the caller is answered, or what has come of an answer that
// does not count. The bytes may not change before the attempt is ended.
func (rec *recorder) answers(h http.Header, size int64, begun, rest []byte) {
	if rec != nil {
		rec.answer = passed{some: true, stream: isSSE(h), encoded: encoded(h), size: size, begun: begun, rest: rest}
	}
}

// answered returns what is kept of the answer (U11); nil: none came, or nothing is
// kept.
func (x *exchange) answered() *agentbus.RecordedBody {
	if x.recorder == nil || !x.recorder.answer.some {
		return nil
	}
	a, kept := x.recorder.answer, &agentbus.RecordedBody{Size: x.recorder.answer.size}
	x.recorder.answer = passed{} // which is large, and done with
	switch {
	case a.encoded:
	case a.stream:
		x.keepStream(kept, &a)
	case utf8.Valid(a.begun):
		x.recorder.keep(kept, x.recorder.text(x.redact(string(a.begun))))
	}
	return kept
}

// keepStream keeps the beginning of a stream, which is all that is looked at: one
// may be hundreds of times as long as what is kept. Nothing is kept of one that
// hides a secret, since agents say one in any number of pieces.
func (x *exchange) keepStream(kept *agentbus.RecordedBody, a *passed) {
	most := 2 * x.recorder.most // a secret that begins in the half that is kept ends in the other
	b := slices.Clip(a.begun[:min(len(a.begun), most)])
	b = append(b, a.rest[:min(len(a.rest), most-len(b))]...)
	lines := b[:bytes.LastIndexAny(b, "\r\n")+1]
	if last := b[len(lines):]; !utf8.Valid(last) || bytes.ContainsRune(last, '\\') { // it may be broken off, and hide something
		b = lines
	}
	if !utf8.Valid(b) {
		return
	}
	text := x.clean(string(b))
	if x.hides(text) {
		return
	}
	x.recorder.keep(kept, text)
	kept.Cut = kept.Cut || len(text) > 0 && int64(len(b)) < a.size
}

// clean takes secrets out of s as it stands.
func (x *exchange) clean(s string) string { return x.recorder.redactor.Text(x.redact(s)) }

// hides reports whether a stream holds a secret that its bytes do not show: one
// that is spelled with escapes, or that its pieces make together (E28).
func (x *exchange) hides(stream string) bool {
	said := spoken{seed: maphash.MakeSeed(), at: map[uint64]*strings.Builder{}}
	for r := sse.NewReader(strings.NewReader(stream), len(stream)); ; {
		e, err := r.Next()
		if e.Data == nil && err != nil {
			break
		}
		if v := gjson.ParseBytes(e.Data); json.Valid(e.Data) && (v.Type == gjson.JSON || v.Type == gjson.String) {
			said.take(0, 0, v)
		} else {
			said.add(0, string(e.Data))
		}
	}
	if s := said.escaped.String(); said.deep || x.clean(s) != s {
		return true
	}
	for _, texts := range said.at {
		if s := texts.String(); x.clean(s) != s {
			return true
		}
	}
	return false
}

// spoken is what the events of a stream say.
type spoken struct {
	seed    maphash.Seed
	at      map[uint64]*strings.Builder // the texts that stand in the same place of the events, one behind the other
	escaped strings.Builder             // those that are spelled with escapes, each by itself
	deep    bool                        // there is more, too deep to be looked at
}

// maxSpoken is how deep events are looked at; none that is known is a tenth as deep.
const maxSpoken = 100

// take takes the texts of a value that stands at a place.
func (s *spoken) take(place uint64, depth int, v gjson.Result) {
	switch {
	case v.Type == gjson.String:
		s.spell(v)
		s.add(place, v.Str)
	case v.Type != gjson.JSON:
	case depth == maxSpoken:
		s.deep = true
	default:
		place = s.within(place, v.Get("index").Raw) // that of a choice, or of a call of a tool
		v.ForEach(func(name, member gjson.Result) bool {
			s.spell(name)
			s.take(s.within(place, name.Str), depth+1, member)
			return !s.deep
		})
	}
}

// within returns the place of a name inside another one.
func (s *spoken) within(place uint64, name string) uint64 {
	return place*31 + maphash.String(s.seed, name)
}

// spell adds a text that is spelled with escapes to those that are.
func (s *spoken) spell(v gjson.Result) {
	if strings.Contains(v.Raw, `\`) {
		s.escaped.WriteString(v.Str + "\n")
	}
}

// add adds a text to those that stood at its place before.
func (s *spoken) add(place uint64, text string) {
	b := s.at[place]
	if b == nil {
		b = &strings.Builder{}
		s.at[place] = b
	}
	b.WriteString(text)
}
