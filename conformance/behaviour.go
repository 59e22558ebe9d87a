package conformance

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// A behaviour is the agent answering one call.
type behaviour struct {
	*recorder

	w      http.ResponseWriter
	q      *http.Request
	of     *expected
	in     *arrival
	nonce  string
	stream bool
}

// perform does what the message of the call asks for:
//
//	text        a whole answer, or a stream when one was asked for
//	held        as text, once the check says so
//	handshake   a stream whose second event waits until the check says so
//	status:N    an error with that status
//	once:N      the same at the first call, text at the next
//	redirect:N  a redirect to this agent
//	drop        hangs up at the first call; text at the next, as below
//	cut         a stream without its end
//	broken      the same, with the connection cut
//	failing     a stream with an error under status 200
//	sse, json   the form that was not asked for
//	crlf, bom, comments, unfinished   streams in forms that readers get wrong
//	hop         text, with headers of its connection
func (b *behaviour) perform(what, number string) {
	status, _ := strconv.Atoi(number) // of three digits, or none
	again := b.in.n > 1
	switch {
	case what == "held":
		if b.held() {
			b.text(b.stream)
		}
	case what == "handshake":
		b.events(b.parts()[:1])
		if b.held() {
			b.events(b.parts()[1:])
		}
	case what == "status", what == "once" && !again:
		body := errorBody("this is what was asked for, in execution " + b.id())
		b.keep(body)
		answerError(b.w, status, body)
	case what == "redirect":
		http.Redirect(b.w, b.q, "http://"+b.addr+"/trap/"+b.nonce, status)
	case what == "drop" && !again:
		if conn, _, err := http.NewResponseController(b.w).Hijack(); err == nil {
			_ = conn.Close() // that is the answer
		}
	case what == "cut" && !again, what == "broken" && !again:
		b.events(b.parts()[:2])
		if what == "broken" {
			panic(http.ErrAbortHandler) //nolint:forbidigo // the server cuts the connection
		}
	case what == "failing" && !again:
		b.events([]string{b.parts()[0], `data: {"error":{"message":"the model is gone","type":"server_error"}}` + "\n\n"})
	case what == "sse", what == "json":
		b.text(what == "sse")
	case what == "hop":
		b.w.Header()["Connection"] = []string{"X-Conformance-Agent-Hop"}
		b.w.Header()["X-Conformance-Agent-Hop"] = []string{"1"}
		b.w.Header()["Proxy-Authenticate"] = []string{"Basic"}
		b.w.Header()["Keep-Alive"] = []string{"timeout=7"}
		b.text(false)
	default:
		b.shaped(what)
	}
}

// shaped answers with a stream in another form, or as text.
func (b *behaviour) shaped(what string) {
	all := strings.Join(b.parts(), "")
	switch what {
	case "crlf":
		all = strings.ReplaceAll(all, "\n", "\r\n")
	case "bom":
		all = "\xef\xbb\xbf" + all
	case "comments":
		all = ": a comment\n\nid: 7\nevent: message\nretry: 1000\n" + strings.Replace(all, `,"choices"`, ",\ndata: \"choices\"", 1) + ": the end\n\n"
	case "unfinished":
		all = strings.TrimSuffix(all, "\n\n")
	default:
		b.text(b.stream)
		return
	}
	b.events([]string{all})
}

// held waits until the check lets the answer go on.
func (b *behaviour) held() bool {
	select {
	case <-b.of.release:
		return true
	case <-b.over:
	case <-b.q.Context().Done():
	}
	return false
}

// keep notes what is told, before it is.
func (b *behaviour) keep(told string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.in.told += told
}

func (b *behaviour) id() string { return b.nonce + "-" + strconv.Itoa(b.in.n) }

func (b *behaviour) text(stream bool) {
	if stream {
		b.events(b.parts())
		return
	}
	body := fmt.Sprintf(`{ "id":"chatcmpl-%s", "object":"chat.completion","created":1,"model":"conformance","choices":[{"index":0,`+
		`"message":{"role":"assistant","content":"part 1, part 2 of %s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17},"x_unknown":1.50 }`, b.id(), b.id())
	b.keep(body)
	b.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(b.w, body)
}

// parts are the events of a stream. No two executions say the same.
func (b *behaviour) parts() []string {
	chunk := func(delta, finish, usage string) string {
		return fmt.Sprintf(`data: {"id":"chatcmpl-%s","object":"chat.completion.chunk","created":1,"model":"conformance","choices":[{"index":0,"delta":{%s},"finish_reason":%s}]%s}`+"\n\n", b.id(), delta, finish, usage)
	}
	return []string{
		chunk(`"role":"assistant","content":"part 1, "`, "null", ""),
		chunk(`"content":"part 2 of `+b.id()+`"`, "null", ""),
		chunk("", `"stop"`, `,"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}`),
		"data: [DONE]\n\n",
	}
}

// events sends events, and each at once.
func (b *behaviour) events(events []string) {
	b.w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		b.keep(e)
		_, err := io.WriteString(b.w, e)
		if err != nil || http.NewResponseController(b.w).Flush() != nil {
			return // the endpoint hung up
		}
	}
}
