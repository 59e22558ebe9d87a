package a2a

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// An Operation is what a method of A2A does, for policies, limits and spans.
type Operation string

// The operations. Only send and stream are calls: they execute and are charged.
// The others pass.
const (
	OpSend      Operation = "send"
	OpStream    Operation = "stream"
	OpGet       Operation = "get"
	OpList      Operation = "list"
	OpCancel    Operation = "cancel"
	OpSubscribe Operation = "subscribe"
	OpPush      Operation = "push"
	OpCard      Operation = "card"
	OpOther     Operation = "other" // a method that is not known here: it passes
)

// Executes reports whether the operation makes the agent do something that is
// charged: a call of the ledger (G20).
func (o Operation) Executes() bool { return o == OpSend || o == OpStream }

// Streams reports whether the operation is answered with a stream.
func (o Operation) Streams() bool { return o == OpStream || o == OpSubscribe }

// TellsTasks reports whether the operation is answered with tasks, or with an
// error.
func (o Operation) TellsTasks() bool {
	return o == OpGet || o == OpList || o == OpCancel || o == OpSubscribe
}

// Repeatable reports whether the operation may be sent again after bytes of it
// were sent (A15).
func (o Operation) Repeatable() bool { return o == OpGet || o == OpList || o == OpCard }

// A Method is one method of A2A under all its names (A5).
type Method struct {
	Name      string // of A2A 1.0; "other" for one that is not known
	Operation Operation
	Creates   bool     // it stores a webhook (A17)
	old       string   // of A2A 0.3; "": it has none
	verbs     []string // of HTTP+JSON
	path      string   // of HTTP+JSON; {id} is a task's, {config} that of a push configuration
}

// Other is the method that is not known.
var other = Method{Name: string(OpOther), Operation: OpOther}

// methods is the one table of methods.
var methods = [...]Method{
	{"SendMessage", OpSend, false, "message/send", []string{http.MethodPost}, "message:send"},
	{"SendStreamingMessage", OpStream, false, "message/stream", []string{http.MethodPost}, "message:stream"},
	{"GetTask", OpGet, false, "tasks/get", []string{http.MethodGet}, "tasks/{id}"},
	{"ListTasks", OpList, false, "", []string{http.MethodGet}, "tasks"},
	{"CancelTask", OpCancel, false, "tasks/cancel", []string{http.MethodPost}, "tasks/{id}:cancel"},
	{"SubscribeToTask", OpSubscribe, false, "tasks/resubscribe", []string{http.MethodGet, http.MethodPost}, "tasks/{id}:subscribe"},
	{"CreateTaskPushNotificationConfig", OpPush, true, "tasks/pushNotificationConfig/set", []string{http.MethodPost}, "tasks/{id}/pushNotificationConfigs"},
	{"GetTaskPushNotificationConfig", OpPush, false, "tasks/pushNotificationConfig/get", []string{http.MethodGet}, "tasks/{id}/pushNotificationConfigs/{config}"},
	{"ListTaskPushNotificationConfigs", OpPush, false, "tasks/pushNotificationConfig/list", []string{http.MethodGet}, "tasks/{id}/pushNotificationConfigs"},
	{"DeleteTaskPushNotificationConfig", OpPush, false, "tasks/pushNotificationConfig/delete", []string{http.MethodDelete}, "tasks/{id}/pushNotificationConfigs/{config}"},
	{"GetExtendedAgentCard", OpCard, false, "agent/getAuthenticatedExtendedCard", []string{http.MethodGet}, "extendedAgentCard"},
	{"GetExtendedAgentCard", OpCard, false, "", []string{http.MethodGet}, "card"}, // of A2A 0.3, below /v1
}

// MethodOf returns the method of a JSON-RPC name, of A2A 1.0 or 0.3.
func MethodOf(name string) Method {
	for i := range methods {
		if m := &methods[i]; name == m.Name || name == m.old && name != "" {
			return *m
		}
	}
	return other
}

// MethodAt returns the method of an HTTP+JSON request, and the id of the task
// that its path names, for a method that is not known too. path is escaped, below
// the agent's mount. What stands before the method's own path is the tenant's, or
// the /v1 of A2A 0.3. Empty segments, and one at the end, are as if they were not
// there.
func MethodAt(verb, path string) (m Method, task string) {
	segments := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	for i := range methods {
		want := strings.Split(methods[i].path, "/")
		if len(segments) < len(want) {
			continue
		}
		if id, ok := match(segments[len(segments)-len(want):], want); ok && slices.Contains(methods[i].verbs, verb) {
			return methods[i], id
		}
	}
	return other, taskIn(segments)
}

// taskIn returns the id of the task that the path of a method which is not known
// names: what follows tasks, without the action behind it.
func taskIn(segments []string) string {
	at := slices.Index(segments, "tasks") + 1
	if at == 0 || at == len(segments) {
		return ""
	}
	id, err := url.PathUnescape(segments[at])
	if err != nil {
		return ""
	}
	if colon := strings.LastIndexByte(id, ':'); colon >= 0 && isAction(id[colon+1:]) {
		return id[:colon]
	}
	return id
}

func isAction(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// match compares the segments of a path with those of a method.
func match(got, want []string) (task string, ok bool) {
	for i, w := range want {
		plain, err := url.PathUnescape(got[i])
		if err != nil {
			return "", false
		}
		switch suffix, isID := strings.CutPrefix(w, "{id}"); {
		case isID:
			id, ends := strings.CutSuffix(plain, suffix)
			if !ends || id == "" || suffix == "" && hasAction(id) {
				return "", false
			}
			task = id
		case w == "{config}":
		case plain != w:
			return "", false
		}
	}
	return task, true
}

// hasAction reports whether a segment is an id and an action on it.
func hasAction(segment string) bool {
	return strings.HasSuffix(segment, ":cancel") || strings.HasSuffix(segment, ":subscribe")
}
