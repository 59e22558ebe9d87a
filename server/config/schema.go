package config

import (
	"encoding/json"
	"reflect"
)

// SchemaID names the JSON Schema that [Schema] returns.
const SchemaID = "https://github.com/agentbus/agentbus/schemas/agentbus.yaml.json"

// variablePattern is a text that holds a variable, which a schema cannot read.
const variablePattern = `\$\{` + namePattern + `\}`

type object = map[string]any

// Schema returns the JSON Schema (draft 2020-12) of the configuration file,
// for editors and other checkers. It accepts what [Load] accepts; what it
// cannot say, such as that a participant is an agent of the file, Load alone
// refuses.
func Schema() []byte {
	s := sectionSchema(reflect.TypeFor[Config]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = SchemaID
	s["title"] = "agentbus.yaml"
	s["type"] = []string{"object", "null"} // an empty file is all defaults
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil // maps, slices and strings marshal; a test reads the schema
	}
	return append(out, '\n')
}

func sectionSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		properties[f.name] = f.schema()
		if f.required && f.kinds == nil {
			required = append(required, f.name)
		}
	}
	s := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if t == reflect.TypeFor[Agent]() {
		s["allOf"] = kindRules(t)
	}
	return s
}

// kindRules says for each kind of agent which keys it needs and which it cannot
// have.
func kindRules(t reflect.Type) []object {
	var rules []object
	for _, kind := range []Kind{KindOpenAI, KindA2A, KindBuiltin, KindConversation, KindExec} {
		forbidden, required, either := object{}, []string{}, []object{}
		for _, f := range fieldsOf(t) {
			switch {
			case f.kinds == nil:
			case !f.belongs(kind):
				forbidden[f.name] = false
			case f.or != "":
				either = append(either, object{"oneOf": []object{{"required": []string{f.name}}, {"required": []string{f.or}}}})
			case f.required:
				required = append(required, f.name)
			}
		}
		then := object{"properties": forbidden, "required": required}
		if len(either) > 0 {
			then["allOf"] = either
		}
		rules = append(rules, object{
			"if":   object{"properties": object{"kind": object{"const": string(kind)}}, "required": []string{"kind"}},
			"then": then,
		})
	}
	return rules
}

func (f field) schema() object {
	if f.later {
		return object{"description": f.doc + " This version reads it and does not act on it: " + f.instead + "."}
	}
	s := f.typeSchema(f.typ)
	if f.doc != "" {
		s["description"] = f.doc
	}
	if v := reflect.New(f.typ).Elem(); f.def != "" && f.parse(f.def, v) == nil {
		s["default"] = defaultValue(v)
	}
	return s
}

// defaultValue is v as the schema's own types write it.
func defaultValue(v reflect.Value) any {
	switch {
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.Kind() == reflect.Int:
		return v.Int()
	case v.Type() == typeMicros, v.Kind() == reflect.Float64:
		return json.Number(format(v))
	}
	return format(v)
}

func (f field) typeSchema(t reflect.Type) object {
	nullable := t.Kind() != reflect.Struct || f.name != ""
	switch {
	case isScalar(t):
		return f.scalarSchema(t)
	case t.Kind() == reflect.Pointer:
		t = t.Elem()
	case t.Kind() == reflect.Slice:
		s := object{"type": []string{"array", "null"}, "items": field{pattern: f.pattern, enum: f.enum}.typeSchema(t.Elem())}
		if f.required || f.min != "" {
			s["type"] = "array"
		}
		if f.min != "" {
			s["minItems"] = json.Number(f.min)
		}
		if f.max != "" {
			s["maxItems"] = json.Number(f.max)
		}
		return s
	case t.Kind() == reflect.Map:
		s := object{"type": []string{"object", "null"}, "additionalProperties": field{}.typeSchema(t.Elem())}
		if f.keys != "" {
			s["propertyNames"] = object{"pattern": f.keys}
		}
		return s
	}
	s := sectionSchema(t)
	if nullable {
		s["type"] = []string{"object", "null"}
	}
	return s
}

// wholeNumber allows numbers within the bounds of f; one without a max has no
// upper one.
func (f field) wholeNumber() object {
	o := object{"type": "integer", "minimum": f.bound(f.min)}
	if f.max != "" {
		o["maximum"] = f.bound(f.max)
	}
	return o
}

// scalarSchema allows, beside the values of type t, a text with a variable.
func (f field) scalarSchema(t reflect.Type) object {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	text := func(pattern string) object { return object{"type": "string", "pattern": pattern} }
	variable := text(variablePattern)
	switch {
	case f.enum != nil:
		return object{"anyOf": []object{{"enum": f.enum}, variable}}
	case t == typeCredential && f.pattern == "":
		return text(`^[ -~]*$`)
	case t == typeDuration:
		return object{"anyOf": []object{text(durationPattern), variable}}
	case t == typeSize:
		return object{"anyOf": []object{f.wholeNumber(), text(sizePattern), variable}}
	case t == typeMicros:
		return object{"anyOf": []object{{"type": "number", "minimum": 0, "maximum": int64(9e9)}, text(usdPattern), variable}}
	case t.Kind() == reflect.Int:
		return object{"anyOf": []object{f.wholeNumber(), variable}}
	case t.Kind() == reflect.Float64:
		return object{"anyOf": []object{{"type": "number", "minimum": 0, "maximum": maxRate}, text(ratePattern), variable}}
	case t.Kind() == reflect.Bool:
		return object{"anyOf": []object{{"type": "boolean"}, variable}}
	case f.pattern != "":
		return object{"anyOf": []object{text(f.pattern), variable}}
	}
	return object{"type": "string"}
}
