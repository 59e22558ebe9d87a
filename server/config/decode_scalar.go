package config

import (
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

const namePattern = `[A-Za-z_][A-Za-z0-9_]*`

var (
	nameRE     = regexp.MustCompile(`^` + namePattern + `$`)
	variableRE = regexp.MustCompile(`^\$\{(` + namePattern + `)\}`)
)

// scalar reads n as one value. What stands in quotes is text; what comes from a
// variable is read as the key wants it.
func (l *loader) scalar(n *yaml.Node, f field, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		l.wrongShape(n, path, "one value", "")
		return
	}
	text, expanded, m := l.expand(n.Value)
	if m == nil && !expanded {
		m = typeMistake(n, f, v.Type())
	}
	if m == nil {
		shown := text
		if expanded {
			shown = n.Value
		}
		m = f.parseShown(text, shown, v)
	}
	if m != nil {
		l.nodeFault(n, path, m.problem, m.fix)
		return
	}
	l.form(f, path, text)
}

// form remembers that the value of the key at path has not the form that f asks
// for.
func (l *loader) form(f field, path, text string) {
	if !f.fits(text) {
		l.formless = append(l.formless, formless{path, f.example})
	}
}

// A formless is a value that has not the form of its key.
type formless struct{ path, example string }

// forms reports the values whose form is wrong, where no check has said more: what
// the schema refuses is refused. The value is not repeated: it may be a secret.
func (l *loader) forms() {
	for _, v := range l.formless {
		if l.told(v.path) {
			continue
		}
		fix := "see agentbus config explain " + v.path
		if v.example != "" {
			fix = "write it like " + v.example
		}
		l.fault(v.path, "this is not of the form that the key takes", fix)
	}
}

// told reports whether a fault of the key at path, or of what holds it, is known.
func (l *loader) told(path string) bool {
	for ; path != ""; path = parent(path) {
		if l.faulty(path) {
			return true
		}
	}
	return false
}

// typeMistake says in plain words why n cannot be a value of type t, or nil.
func typeMistake(n *yaml.Node, f field, t reflect.Type) *mistake {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	tag := n.ShortTag()
	isText := tag == "!!str" || tag == "!!timestamp"
	switch {
	case tag == "!!null":
		return &mistake{"it has no value", "write " + wanted(field{typ: t, enum: f.enum}) + ", or remove the key"}
	case t == typeMicros || t.Kind() == reflect.Float64:
		if isText || tag == "!!int" || tag == "!!float" {
			return nil
		}
	case t == typeSize:
		if isText || tag == "!!int" {
			return nil
		}
	case t == typeDuration:
		if tag == "!!int" {
			return &mistake{n.Value + " has no unit", "write " + n.Value + "s for seconds, or another of ms, m, h, d"}
		}
		if isText {
			return nil
		}
	case t.Kind() == reflect.Int:
		if tag == "!!int" {
			return nil
		}
		if isText && intRE.MatchString(n.Value) {
			return &mistake{"the number stands in quotes", "remove the quotes"}
		}
	case t.Kind() == reflect.Bool:
		if tag == "!!bool" {
			return nil
		}
	case isText:
		return nil
	case t == typeCredential:
		return &mistake{"here stands " + shape(n) + " where text must stand", "put it in quotes"}
	default:
		if _, ok := hostOf(f.def); ok {
			return &mistake{"here stands " + shape(n) + " where an address must stand", "write host:port, such as " + f.def}
		}
		return &mistake{"here stands " + shape(n) + " where text must stand", "put it in quotes: " + quote(n.Value)}
	}
	return &mistake{"here stands " + shape(n) + " where " + wanted(field{typ: t}) + " must stand", "write " + wanted(field{typ: t})}
}

// wanted names the values of f in plain words.
func wanted(f field) string {
	t := f.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case f.enum != nil:
		return oneOf(f.enum)
	case f.example != "":
		return f.example
	case t == typeDuration:
		return "a duration such as 10m"
	case t == typeSize:
		return "a size such as 4MiB"
	case t == typeMicros:
		return "an amount of dollars such as 0.15"
	case t.Kind() == reflect.Float64:
		return "a number such as 0.5"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "text"
}

// expand puts the environment into s: ${NAME} is the value of NAME, which must
// be set, and $${ is the text ${ itself.
func (l *loader) expand(s string) (text string, expanded bool, _ *mistake) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			b.WriteString(s)
			return b.String(), expanded, nil
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch m := variableRE.FindStringSubmatch(s); {
		case m != nil:
			value, ok := l.src.Env(m[1])
			if !ok {
				return "", true, &mistake{"the environment variable " + m[1] + " is not set", "set it, or write $" + m[0] + " for the text itself"}
			}
			b.WriteString(value)
			expanded, s = true, s[len(m[0]):]
		case strings.HasPrefix(s, "$${"):
			b.WriteString("${")
			s = s[3:]
		case strings.HasPrefix(s, "${"):
			return "", true, &mistake{"${ begins the name of a variable, and none follows", "write ${NAME}, or $${ for the text itself"}
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}
