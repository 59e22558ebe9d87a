package config

import (
	"cmp"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Topic is one key of the file, whether it stands there or not.
type Topic struct {
	Key   string `json:"key"`
	Doc   string `json:"doc,omitempty"`
	Takes string `json:"takes,omitempty"` // what may stand there, and the default; "" for keys that hold others
	// Settings are the key itself, or what is below it: as it is in force, else as
	// it would be.
	Settings []Setting `json:"settings"`
}

// step is a name in the path of a key, or the number of an entry in brackets.
var step = regexp.MustCompile(`\[[0-9]*\]|[^.\[\]]+`)

// Topic tells of the key at path, such as limits.max_depth, agents.critic.url or
// keys[0]. An agent, a conversation or an entry that is not there stands for any.
func (c *Config) Topic(path string) (Topic, error) {
	v, f, kind, at := reflect.ValueOf(c).Elem(), field{}, Kind(""), ""
	for _, name := range step.FindAllString(path, -1) {
		v = solid(v)
		switch {
		case isSection(v.Type()):
			names := namesOf(v.Type())
			i := slices.Index(names, name)
			if i < 0 {
				return Topic{}, errors.New("there is no key " + join(at, name) + near(at, name, names))
			}
			if a, ok := reflect.TypeAssert[Agent](v); ok {
				kind = a.Kind
			}
			f = fieldsOf(v.Type())[i]
			v, at = v.Field(f.index), join(at, name)
		case v.Kind() == reflect.Map && name[0] == '[':
			return Topic{}, errors.New("what is below " + at + " has names; write " + join(at, "NAME"))
		case v.Kind() == reflect.Map:
			v, at = entryOf(v, name), join(at, name)
			f.typ = v.Type()
		case v.Kind() == reflect.Slice:
			if name[0] != '[' {
				return Topic{}, errors.New(at + " is a list; its first entry is " + item(at, 0))
			}
			n, _ := strconv.Atoi(name[1 : len(name)-1]) // what is no number, and [], is the first
			v, at = elementOf(v, n), item(at, n)
			f.typ = v.Type()
		default:
			return Topic{}, errors.New("there is nothing below " + at)
		}
	}
	if at == "" {
		return Topic{}, errors.New(quote(path) + " is not a key")
	}
	return c.topic(v, f, kind, at), nil
}

func (c *Config) topic(v reflect.Value, f field, kind Kind, at string) Topic {
	t := Topic{Key: at, Doc: f.doc, Settings: []Setting{}}
	if f.later {
		t.Doc += " This version reads it and does not act on it: " + f.instead + "."
		return t
	}
	w := walker{c: c, deep: true}
	switch {
	case isSection(v.Type()):
		w.section(v, at, kind)
	default:
		w.value(v, f, at)
	}
	t.Settings = append(t.Settings, w.out...)
	if isScalar(v.Type()) {
		t.Takes = f.takes()
	}
	return t
}

// takes says in one line what may stand at f.
func (f field) takes() string {
	said := wanted(field{typ: f.typ, enum: f.enum})
	if f.min != "" || f.max != "" {
		said += ", from " + cmp.Or(f.min, "0") + " to " + cmp.Or(f.max, "any")
	}
	if f.example != "" {
		said += ", such as " + f.example
	}
	if f.kinds != nil {
		said += "; of agents of kind " + oneOf(f.kinds)
	}
	switch {
	case f.def != "":
		said += "; default " + f.def
	case f.required:
		said += "; it must be there"
	default:
		said += "; by default there is none"
	}
	return said
}

// String is the topic as a page: what the key is, then what is below it.
func (t Topic) String() string {
	var b strings.Builder
	if len(t.Settings) == 0 || t.Settings[0].Key != t.Key {
		b.WriteString(t.Key + "\n")
		comment(&b, "    ", t.Doc)
	}
	b.WriteString(tell(t.Settings))
	if t.Takes != "" {
		comment(&b, "    ", "Takes "+t.Takes+".")
	}
	return b.String()
}

// solid is what v points to, and a fresh one where it points to nothing.
func solid(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if !v.IsNil() {
		return v.Elem()
	}
	return fresh(v.Type().Elem())
}

// fresh is a value of type t as a file begins it.
func fresh(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	if isSection(t) {
		setDefaults(v)
	}
	return v
}

func entryOf(m reflect.Value, name string) reflect.Value {
	if v := m.MapIndex(reflect.ValueOf(name)); v.IsValid() {
		return v
	}
	return fresh(m.Type().Elem())
}

func elementOf(s reflect.Value, n int) reflect.Value {
	if n >= 0 && n < s.Len() {
		return s.Index(n)
	}
	return fresh(s.Type().Elem())
}

func namesOf(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

// near says which of names below at was meant, else all of them.
func near(at, name string, names []string) string {
	if n := nearest(name, names); n != "" {
		return "; did you mean " + join(at, n) + "?"
	}
	if at == "" {
		return ""
	}
	return "; below " + at + " are " + strings.Join(names, ", ")
}
