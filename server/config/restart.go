package config

import "reflect"

// WaitsForRestart returns the keys in which next differs from what runs and that
// cannot change while the bus serves (G30), in the order of the documentation.
func WaitsForRestart(running, next *Config) []string {
	return changed(reflect.ValueOf(running).Elem(), reflect.ValueOf(next).Elem(), "")
}

func changed(a, b reflect.Value, path string) (keys []string) {
	for _, f := range fieldsOf(a.Type()) {
		if f.later {
			continue
		}
		key := join(path, f.name)
		switch was, is := a.Field(f.index), b.Field(f.index); {
		case isSection(f.typ):
			keys = append(keys, changed(was, is, key)...)
		case f.restart && !reflect.DeepEqual(was.Interface(), is.Interface()):
			keys = append(keys, key)
		}
	}
	return keys
}
