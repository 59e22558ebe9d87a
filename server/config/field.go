package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// A field is one key, as the tags of its struct field describe it.
type field struct {
	name, doc, def, env, example string
	instead                      string
	or                           string
	min, max, pattern, keys      string
	enum, kinds                  []string
	required                     bool
	later                        bool // accepted, not acted on
	restart                      bool // a change waits for a restart
	index                        int
	typ                          reflect.Type
}

// The types that a value can have beyond those of the language.
var (
	typeDuration   = reflect.TypeFor[time.Duration]()
	typeSize       = reflect.TypeFor[Size]()
	typeMicros     = reflect.TypeFor[agentbus.Micros]()
	typeCredential = reflect.TypeFor[agentbus.Credential]()
	typeLater      = reflect.TypeFor[later]()
)

var (
	fieldCache sync.Map // reflect.Type → []field
	formCache  sync.Map // a pattern → *regexp.Regexp: a file may have a thousand values of one form
)

// fits reports whether text has the form that f asks for.
func (f field) fits(text string) bool {
	if f.pattern == "" {
		return true
	}
	form, ok := formCache.Load(f.pattern)
	if !ok {
		form, _ = formCache.LoadOrStore(f.pattern, regexp.MustCompile(f.pattern))
	}
	return form.(*regexp.Regexp).MatchString(text) //nolint:errcheck // nothing else is stored there
}

// fieldsOf returns the keys of struct t in the order of their declaration.
func fieldsOf(t reflect.Type) []field {
	if fs, ok := fieldCache.Load(t); ok {
		return fs.([]field) //nolint:errcheck // nothing else is stored there
	}
	var fs []field
	for i := range t.NumField() {
		sf := t.Field(i)
		name := sf.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		doc := sf.Tag.Get("doc")
		if sf.Tag.Get("restart") == "true" {
			doc += " A change waits for a restart."
		}
		fs = append(fs, field{
			name: name, doc: doc, def: sf.Tag.Get("default"), env: sf.Tag.Get("env"), example: sf.Tag.Get("example"), instead: sf.Tag.Get("instead"), or: sf.Tag.Get("or"),
			min: sf.Tag.Get("min"), max: sf.Tag.Get("max"), pattern: sf.Tag.Get("pattern"), keys: sf.Tag.Get("keys"),
			enum: words(sf.Tag.Get("enum")), kinds: words(sf.Tag.Get("for")),
			required: sf.Tag.Get("required") == "true", later: sf.Type == typeLater, restart: sf.Tag.Get("restart") == "true",
			index: i, typ: sf.Type,
		})
	}
	fieldCache.Store(t, fs)
	return fs
}

func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "|")
}

// belongs reports whether the key may stand in an agent of kind k.
func (f field) belongs(k Kind) bool { return f.kinds == nil || slices.Contains(f.kinds, string(k)) }

// isScalar reports whether a value of type t is one word in the file.
func isScalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t == typeCredential || t.Kind() != reflect.Struct && t.Kind() != reflect.Map && t.Kind() != reflect.Slice
}

// isSection reports whether t is a struct of keys.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && t != typeCredential }

// join puts a key behind the path of what holds it.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// setDefaults fills the struct v from its tags, and the structs in it.
func setDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		switch {
		case f.later:
		case f.def != "":
			_ = f.parse(f.def, v.Field(f.index)) // a test parses every default
		case isSection(f.typ):
			setDefaults(v.Field(f.index))
		}
	}
}
