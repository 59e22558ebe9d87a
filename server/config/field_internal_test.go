package config

import (
	"reflect"
	"strings"
	"testing"
)

// The tags are data: each default and each bound must be a value of its key,
// each documented, each key at its place once.
func TestTags(t *testing.T) {
	t.Parallel()
	var walk func(t *testing.T, typ reflect.Type)
	walk = func(t *testing.T, typ reflect.Type) {
		t.Helper()
		seen := map[string]bool{}
		for _, f := range fieldsOf(typ) {
			name := typ.Name() + "." + f.name
			if seen[f.name] {
				t.Errorf("%s stands there twice", name)
			}
			seen[f.name] = true
			if !strings.HasSuffix(f.doc, ".") {
				t.Errorf("%s: doc %q is no sentence", name, f.doc)
			}
			for tag, text := range map[string]string{"default": f.def, "min": f.min, "max": f.max} {
				if text == "" || f.typ.Kind() == reflect.Slice {
					continue
				}
				if m := f.parse(text, reflect.New(f.typ).Elem()); m != nil {
					t.Errorf("%s: %s %q: %s", name, tag, text, m.problem)
				}
			}
			if f.env != "" && !isScalar(f.typ) {
				t.Errorf("%s: only a scalar can come from %s", name, f.env)
			}
			for typ := f.typ; !f.later; typ = typ.Elem() {
				if isSection(typ) {
					walk(t, typ)
				}
				if k := typ.Kind(); k != reflect.Slice && k != reflect.Map && k != reflect.Pointer {
					break
				}
			}
		}
	}
	walk(t, reflect.TypeFor[Config]())
}

func TestPatternsOfSchemaAndLoaderAreOne(t *testing.T) {
	t.Parallel()
	pattern := func(typ reflect.Type, key string) (pattern, keys string) {
		for _, f := range fieldsOf(typ) {
			if f.name == key {
				return f.pattern, f.keys
			}
		}
		return "", ""
	}
	_, agents := pattern(reflect.TypeFor[Config](), "agents")
	_, conversations := pattern(reflect.TypeFor[Config](), "conversations")
	_, headers := pattern(reflect.TypeFor[Agent](), "headers")
	aliases, _ := pattern(reflect.TypeFor[Agent](), "aliases")
	apiKeyEnv, _ := pattern(reflect.TypeFor[Agent](), "api_key_env")
	id, _ := pattern(reflect.TypeFor[Key](), "id")
	secretEnv, _ := pattern(reflect.TypeFor[Key](), "secret_env")
	introspectionName, _ := pattern(reflect.TypeFor[Introspection](), "name")
	mtlsName, _ := pattern(reflect.TypeFor[MTLS](), "name")
	for _, p := range [][2]string{
		{introspectionName, realmPattern},
		{mtlsName, realmPattern},
		{agents, agentNamePattern},
		{conversations, agentNamePattern},
		{headers, headerPattern},
		{aliases, aliasPattern},
		{id, idPattern},
		{apiKeyEnv, nameRE.String()},
		{secretEnv, nameRE.String()},
	} {
		if p[0] != p[1] {
			t.Errorf("the schema says %s, the loader %s", p[0], p[1])
		}
	}
}
