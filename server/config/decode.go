package config

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file reads the YAML document data into the Config.
func (l *loader) file(data []byte) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return // no file, or nothing but comments
	}
	if err == nil {
		var second yaml.Node
		if err = dec.Decode(&second); errors.Is(err, io.EOF) {
			l.document(doc.Content[0])
			return
		}
		if err == nil {
			l.nodeFault(&second, "", "the file holds a second document", "remove the line --- and what follows, or merge the two")
			return
		}
	}
	l.syntax(err, data)
}

func (l *loader) document(n *yaml.Node) {
	if n.ShortTag() == "!!null" {
		return
	}
	l.section(n, n, reflect.ValueOf(l.c).Elem(), "")
}

var yamlErrorRE = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(?s:(.*))$`)

// syntax reports text that is not YAML. The parser tells the line; the column
// is that of the line's first character.
func (l *loader) syntax(err error, data []byte) {
	f := Fault{File: l.c.Path, Problem: "this is not YAML: " + err.Error(), Fix: "check indentation, quotes and brackets at or just before this line"}
	if m := yamlErrorRE.FindStringSubmatch(err.Error()); m != nil {
		f.Problem = "this is not YAML: " + m[2]
		f.Line, _ = strconv.Atoi(m[1])
	}
	lines := bytes.Split(data, []byte("\n"))
	f.Line = min(max(f.Line, 1), len(lines))
	line := lines[f.Line-1]
	indent := len(line) - len(bytes.TrimLeft(line, " \t"))
	if f.Column = 1 + indent; bytes.IndexByte(line[:indent], '\t') >= 0 {
		f.Fix = "indent with spaces: YAML takes no tabs there"
	} else if near := bytes.Join(lines[f.Line-1:min(f.Line+1, len(lines))], nil); bytes.Contains(near, []byte("${")) { // the parser may name the line before
		f.Fix = "inside { } and [ ] put a variable in quotes, such as \"${NAME}\""
	}
	l.add(f)
}

func (l *loader) nodeFault(n *yaml.Node, path, problem, fix string) {
	l.add(Fault{File: l.c.Path, Line: n.Line, Column: n.Column, Key: path, Problem: problem, Fix: fix})
}

func (l *loader) origin(path string, n *yaml.Node) {
	l.c.origins[path] = Origin{File: l.c.Path, Line: n.Line, Column: n.Column}
}

// entries calls each for the entries of mapping n, in their order, but for
// those that stand there twice.
func (l *loader) entries(n *yaml.Node, path string, each func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		l.wrongShape(n, path, "keys and values", "")
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch line, twice := first[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			l.nodeFault(key, path, "a key must be one word", "write it as text, without brackets and anchors")
		case twice:
			l.nodeFault(key, join(path, key.Value), "the key stands here a second time; the first is in line "+strconv.Itoa(line), "remove one of them")
		default:
			first[key.Value] = key.Line
			each(key, n.Content[i+1])
		}
	}
}

// section reads mapping n, which stands under key, into the struct v.
func (l *loader) section(key, n *yaml.Node, v reflect.Value, path string) {
	fs := fieldsOf(v.Type())
	seen := map[string]bool{}
	l.entries(n, path, func(key, value *yaml.Node) {
		for _, f := range fs {
			if f.name == key.Value {
				seen[f.name] = true
				l.entry(key, value, f, v, join(path, f.name))
				return
			}
		}
		l.unknown(key, fs, path)
	})
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, f := range fs {
		if f.required && f.kinds == nil && !seen[f.name] {
			l.nodeFault(key, join(path, f.name), "the key is missing", "add "+f.name+": "+wanted(f))
		}
	}
}

func (l *loader) entry(key, value *yaml.Node, f field, v reflect.Value, path string) {
	if f.later {
		l.warnings = append(l.warnings, Warning{
			File: l.c.Path, Line: key.Line, Column: key.Column, Key: path,
			Problem: "this version reads the key and does not act on it", Fix: cmp.Or(f.instead, "remove it, or keep it for a later version"),
		})
	}
	if f.later {
		l.plain(value, path)
		return
	}
	if value.Kind == yaml.ScalarNode && isScalar(f.typ) {
		l.origin(path, value)
	} else {
		l.origin(path, key)
	}
	l.value(key, value, f, v.Field(f.index), path)
}

func (l *loader) unknown(key *yaml.Node, fs []field, path string) {
	var names, inForce []string
	for _, f := range fs {
		names = append(names, f.name)
		if !f.later {
			inForce = append(inForce, f.name)
		}
	}
	fix := "the keys here are " + strings.Join(inForce, ", ")
	if near := nearest(key.Value, names); near != "" {
		fix = "did you mean " + near + "?"
	}
	if key.Value == "<<" {
		fix = "merge keys are not read; write the values out"
	}
	l.nodeFault(key, join(path, key.Value), "there is no such key", fix)
}

// value reads n, which stands under key, into v.
func (l *loader) value(key, n *yaml.Node, f field, v reflect.Value, path string) {
	switch {
	case n.Kind == yaml.AliasNode:
		l.noAlias(n, path)
	case n.Style&yaml.TaggedStyle != 0 && !coreTags[n.ShortTag()]:
		l.nodeFault(n, path, "the tag "+quote(n.Tag)+" means nothing here", "remove it")
	case isScalar(v.Type()):
		l.scalar(n, f, v, path)
	case n.ShortTag() == "!!null" && n != key:
		// a section whose entries are all commented out
	case v.Kind() == reflect.Slice:
		l.list(n, f, v, path)
	case v.Kind() == reflect.Map:
		l.table(n, f, v, path)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setDefaults(v.Elem())
		l.section(key, n, v.Elem(), path)
	default:
		l.section(key, n, v, path)
	}
}

var coreTags = map[string]bool{
	"!!str": true, "!!int": true, "!!float": true, "!!bool": true, "!!null": true, "!!map": true, "!!seq": true,
}

// list reads a sequence. An item that is null is a value that is missing.
func (l *loader) list(n *yaml.Node, f field, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		l.wrongShape(n, path, "a list", f.example)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, child := range n.Content {
		p := item(path, i)
		l.origin(p, child)
		if isSection(v.Type().Elem()) {
			setDefaults(v.Index(i))
		}
		l.value(child, child, field{name: f.name, pattern: f.pattern, enum: f.enum, example: strings.Trim(f.example, "[]")}, v.Index(i), p)
	}
}

// table reads a mapping whose keys are names.
func (l *loader) table(n *yaml.Node, f field, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	l.entries(n, path, func(key, child *yaml.Node) {
		p := join(path, key.Value)
		l.origin(p, key)
		e := reflect.New(v.Type().Elem()).Elem()
		if isSection(e.Type()) {
			setDefaults(e)
			if child.ShortTag() == "!!null" {
				l.nodeFault(key, p, "it has no value", "write its keys below it, or remove it")
				return
			}
		}
		l.value(key, child, field{name: f.name, pattern: f.pattern}, e, p)
		v.SetMapIndex(reflect.ValueOf(key.Value), e)
	})
}

// plain checks what no key describes: no alias, no key twice.
func (l *loader) plain(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.AliasNode:
		l.noAlias(n, path)
	case yaml.MappingNode:
		l.entries(n, path, func(key, value *yaml.Node) { l.plain(value, join(path, key.Value)) })
	case yaml.SequenceNode:
		for i, child := range n.Content {
			l.plain(child, item(path, i))
		}
	case yaml.DocumentNode, yaml.ScalarNode:
	}
}

func (l *loader) noAlias(n *yaml.Node, path string) {
	l.nodeFault(n, path, "aliases are not read", "write the value out")
}

func (l *loader) wrongShape(n *yaml.Node, path, want, example string) {
	if n.Kind == yaml.AliasNode {
		l.noAlias(n, path)
		return
	}
	fix := "write " + want
	if example != "" {
		fix += ", such as " + example
	}
	l.nodeFault(n, path, "here stands "+shape(n)+" where "+want+" must stand", fix)
}

// shape names what n is, in plain words.
func shape(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a set of keys and values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode, yaml.DocumentNode, yaml.ScalarNode:
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	}
	return "text"
}
