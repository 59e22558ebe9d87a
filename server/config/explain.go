package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// An Origin is where a value came from. The zero Origin is a default.
type Origin struct {
	File   string
	Line   int
	Column int
	Source string // when it is no file: "env NAME" or "flag --name"
}

// String returns "default", "file:line", "env NAME" or "flag --name".
func (o Origin) String() string {
	switch {
	case o.Source != "":
		return o.Source
	case o.Line > 0:
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return "default"
}

// A Setting is one key of a Config in force.
type Setting struct {
	Key     string `json:"key"`               // its path, such as agents.critic.url
	Value   string `json:"value"`             // as the file would write it; [redacted] for a secret, "" for none
	Origin  string `json:"origin"`            // see Origin.String
	Default string `json:"default,omitempty"` // "" for none
	Env     string `json:"env,omitempty"`     // the variable that overrides it
	Doc     string `json:"doc"`
}

// Settings returns every key of c with its value, in the order of the
// documentation. The keys of an agent are those of its kind.
func (c *Config) Settings() []Setting {
	w := walker{c: c}
	w.section(reflect.ValueOf(c).Elem(), "", "")
	return w.out
}

// Origin returns where the value of the key at path came from.
func (c *Config) Origin(path string) Origin { return c.origins[path] }

// walker collects the settings of a Config.
type walker struct {
	c    *Config
	deep bool // also what is below keys that hold nothing yet
	out  []Setting
}

func (w *walker) section(v reflect.Value, path string, k Kind) {
	if a, ok := reflect.TypeAssert[Agent](v); ok {
		k = a.Kind
	}
	for _, f := range fieldsOf(v.Type()) {
		if !f.later && (k == "" || f.belongs(k)) {
			w.value(v.Field(f.index), f, join(path, f.name))
		}
	}
}

func (w *walker) value(v reflect.Value, f field, path string) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.Type() == typeCredential && v.IsZero():
		// nobody wrote a secret here
	case isScalar(v.Type()), v.Kind() == reflect.Pointer, v.Kind() != reflect.Struct && v.Len() == 0:
		w.out = append(w.out, Setting{Key: path, Value: w.text(v), Origin: w.c.origins[path].String(), Default: f.def, Env: f.env, Doc: f.doc})
		if w.deep {
			w.below(v.Type(), path)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			w.value(v.Index(i), f, item(path, i))
		}
	case v.Kind() == reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(keys(v))) {
			w.value(v.MapIndex(reflect.ValueOf(key)), f, join(path, key))
		}
	default:
		w.section(v, path, "")
	}
}

// below tells what would be below the key at path, which holds nothing.
func (w *walker) below(t reflect.Type, path string) {
	switch {
	case isScalar(t):
		return
	case t.Kind() == reflect.Map:
		path = join(path, "NAME")
	case t.Kind() == reflect.Slice:
		path = item(path, 0)
	}
	if t.Kind() != reflect.Struct {
		t = t.Elem()
	}
	if isSection(t) {
		w.section(fresh(t), path, "")
	}
}

// keys returns the keys of the map v as a set.
func keys(v reflect.Value) map[string]struct{} {
	set := map[string]struct{}{}
	for _, k := range v.MapKeys() {
		set[k.String()] = struct{}{}
	}
	return set
}

func (w *walker) text(v reflect.Value) string {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return ""
	}
	if c, ok := reflect.TypeAssert[agentbus.Credential](v); ok {
		return c.String()
	}
	return format(v)
}

// Explain tells every key of c in force: its value, where that came from, and
// what it is for. A documentation that was given once is not repeated.
func Explain(c *Config) string { return tell(c.Settings()) }

// tell is settings as a page.
func tell(settings []Setting) string {
	width := 0
	for _, s := range settings {
		width = max(width, min(len(s.Key)+len(s.shown()), 60))
	}
	var b strings.Builder
	told := map[string]bool{}
	for _, s := range settings {
		fmt.Fprintf(&b, "%-*s  # %s\n", width+2, s.Key+": "+s.shown(), s.Origin)
		if !told[s.Doc] {
			told[s.Doc] = true
			doc := s.Doc
			if s.Default != "" && s.Origin != (Origin{}).String() {
				doc += " Default: " + s.Default + "."
			}
			if s.Env != "" {
				doc += " Overridden by " + s.Env + "."
			}
			comment(&b, "    ", doc)
		}
	}
	return b.String()
}

func (s Setting) shown() string {
	if s.Value == "" {
		return "(none)"
	}
	return s.Value
}
