package a2a

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// The levels of a request at which the SDK reads members, each with those that have
// a name in snake_case.
var (
	spelledParams = []string{
		"context_id", "task_id", "page_size", "page_token", "history_length", "status_timestamp_after", "include_artifacts",
	}
	spelledMessage = []string{"message_id", "context_id", "task_id", "reference_task_ids"}
	spelledPart    = []string{"media_type"}
	spelledConfig  = []string{"accepted_output_modes", "task_push_notification_config", "history_length", "return_immediately"}
)

// camel returns the parameters of a request with the names that the SDK reads. They
// may come in snake_case too, as ProtoJSON has it and the TCK sends it (A4): the SDK
// would take those for unknown, and a list of a context would be one of all tasks.
// What no name of ours is stays as it came.
func camel(params json.RawMessage) json.RawMessage {
	if !bytes.ContainsRune(params, '_') {
		return params
	}
	return respell(params, spelledParams, map[string]func(json.RawMessage) json.RawMessage{
		"configuration": func(v json.RawMessage) json.RawMessage { return respell(v, spelledConfig, nil) },
		"message": func(v json.RawMessage) json.RawMessage {
			return respell(v, spelledMessage, map[string]func(json.RawMessage) json.RawMessage{"parts": respellParts})
		},
	})
}

func respellParts(list json.RawMessage) json.RawMessage {
	var parts []json.RawMessage
	if json.Unmarshal(list, &parts) != nil {
		return list
	}
	for i, p := range parts {
		parts[i] = respell(p, spelledPart, nil)
	}
	return written(parts, list)
}

// respell renames the members of one object that are among names, and does with
// others what below says of them. A member that is there in both spellings keeps the
// one of A2A.
func respell(object json.RawMessage, names []string, below map[string]func(json.RawMessage) json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil || members == nil {
		return object
	}
	for name, v := range members {
		if slices.Contains(names, name) {
			delete(members, name)
			if to := camelCase(name); members[to] == nil {
				members[to] = v
			}
		}
	}
	for name, change := range below {
		if v, ok := members[name]; ok {
			members[name] = change(v)
		}
	}
	return written(members, object)
}

// written returns v as JSON, or what it was before it was read.
func written(v any, before json.RawMessage) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return before
	}
	return raw
}

func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
