package a2a

import (
	"bytes"
	"strconv"

	"github.com/agentbus/agentbus/internal/rawjson"
)

// totals are the names of how many tasks a list has over all its pages.
var totals = []string{"totalSize", "total_size"}

// EditList returns the answer to a ListTasks without the tasks that keep refuses,
// and how many are left. Every other byte is as it came, the token of the next
// page too. answer is valid JSON.
func EditList(answer []byte, b Binding, keep func(TaskRef) bool) (edited []byte, left int) {
	edited, from := make([]byte, 0, len(answer)), 0
	eachOfList(answer, b, func(m rawjson.Member) {
		if string(m.Key) != "tasks" || answer[m.At] != '[' {
			return
		}
		var kept [][]byte
		all := 0
		rawjson.Elements(answer, m.At, func(at, over int) bool {
			var named [2]node
			node(answer[at:over]).pick(named[:], "id", "contextId")
			if all++; keep(TaskRef{named[0].text(), named[1].text()}) {
				kept = append(kept, answer[at:over])
			}
			return true
		})
		if left += len(kept); len(kept) < all {
			edited = append(append(edited, answer[from:m.At+1]...), bytes.Join(kept, []byte(","))...)
			from = m.Over - 1
		}
	})
	return append(edited, answer[from:]...), left
}

// SetTotal returns the answer to a ListTasks with n as how many tasks there are
// over all pages, where it says so.
func SetTotal(answer []byte, b Binding, n int) []byte {
	edited, from := make([]byte, 0, len(answer)+20), 0
	eachOfList(answer, b, func(m rawjson.Member) {
		for _, name := range totals {
			if string(m.Key) == name {
				edited = strconv.AppendInt(append(edited, answer[from:m.At]...), int64(n), 10)
				from = m.Over
			}
		}
	})
	return append(edited, answer[from:]...)
}

// eachOfList calls use with the members of the object that a ListTasks is answered
// with.
func eachOfList(answer []byte, b Binding, use func(rawjson.Member)) {
	at := rawjson.Space(answer, 0)
	if answer[at] != '{' {
		return
	}
	rawjson.Members(answer, at, func(m rawjson.Member) bool {
		switch {
		case b != JSONRPC:
			use(m)
		case string(m.Key) == "result" && answer[m.At] == '{':
			rawjson.Members(answer, m.At, func(m rawjson.Member) bool { use(m); return true })
		}
		return true
	})
}
