package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
)

// scanHead returns where the header block that begins b ends; 0: it is not whole.
// What stands before scanned was looked at: one that drips in is not read again
// at every byte. A line that two readers may end at two places is a fault at
// once, as is a block over the limit.
func scanHead(b []byte, scanned, most int) (end int, fault error) {
	at := bytes.LastIndexByte(b[:scanned], '\n') + 1 // where the line under way begins
	for {
		length := bytes.IndexByte(b[at:], '\n')
		carriage := bytes.IndexByte(b[at:], '\r')
		if length < 0 && (carriage < 0 || at+carriage == len(b)-1) {
			return 0, tooLong(len(b), most)
		}
		if length < 1 || carriage != length-1 {
			return 0, invalid("a line of the request's head ends in a line feed or a carriage return alone")
		}
		if at += length + 1; length == 1 {
			return at, tooLong(at, most)
		}
	}
}

// tooLong is the fault of a header block of n bytes, or so far; nil: none.
func tooLong(n, most int) error {
	if n <= most {
		return nil
	}
	return &agentbus.Error{
		Code: agentbus.CodeRequestTooLarge, Message: "the request's header block is over the limit of " + strconv.Itoa(most) + " bytes",
		Explain: &agentbus.Explain{Rule: "G3", Limit: most, Next: "send less in headers"},
	}
}

// parse reads a header block into the request of w.
func (w *response) parse(head string) error {
	r := w.request
	line, fields, _ := strings.Cut(head, "\r\n")
	if fault := w.parseLine(r, line); fault != nil {
		return fault
	}
	f, fault := parseFields(fields)
	if fault != nil {
		return fault
	}
	r.Header, r.RemoteAddr, r.TLS = f.header, w.conn.remote, w.conn.tls
	if fault := w.parseHost(r, f.hosts); fault != nil {
		return fault
	}
	w.parseConnection(r)
	return w.parseBody(r, f)
}

// parseLine reads the request line.
func (w *response) parseLine(r *http.Request, line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !token(method) {
		return invalid("the first line is no request line: METHOD TARGET HTTP/1.1")
	}
	switch version {
	case "HTTP/1.1":
		r.ProtoMinor = 1
	case "HTTP/1.0":
		w.modern = false
	default:
		return invalid("the version of HTTP is neither 1.1 nor 1.0")
	}
	r.Method, r.RequestURI, r.Proto, r.ProtoMajor = method, target, version, 1
	return parseTarget(r, target)
}

func parseTarget(r *http.Request, target string) (fault error) {
	uri := target
	if authority := r.Method == http.MethodConnect && !strings.HasPrefix(target, "/"); authority {
		uri = "http://" + target
	}
	for i := range len(target) {
		if target[i] <= ' ' || target[i] == 0x7f {
			return invalid("the target of the request has a space or a control character in it")
		}
	}
	var err error
	if r.URL, err = url.ParseRequestURI(uri); err != nil {
		return invalid("the target of the request is no URL")
	}
	if uri != target {
		r.URL.Scheme = ""
	}
	return nil
}

// fields are the header of a request, and what frames its body.
type fields struct {
	header          http.Header
	hosts, lengths  []string
	codings, expect []string
}

// parseFields reads header lines, which end with an empty one.
func parseFields(s string) (f fields, fault error) {
	n := min(strings.Count(s, "\n"), usualFields)
	f.header = make(http.Header, n)
	room := make([]string, n)
	for {
		line, rest, _ := strings.Cut(s, "\r\n")
		if s = rest; line == "" {
			break
		}
		name, value, fault := splitField(line)
		if fault != nil {
			return f, fault
		}
		room = addField(f.header, room, name, value)
	}
	f.hosts, f.lengths, f.codings, f.expect = f.header["Host"], f.header["Content-Length"], f.header["Transfer-Encoding"], f.header["Expect"]
	delete(f.header, "Host")
	delete(f.header, "Transfer-Encoding")
	delete(f.header, "Trailer")
	return f, nil
}

// usualFields is for how many header lines room is made at once: a block of lines
// with next to nothing in them would have much more made than it holds.
const usualFields = 64

// addField adds a value to h. It takes room for the first one of a name from room,
// and returns what is left of that.
func addField(h http.Header, room []string, name, value string) []string {
	if known := h[name]; known != nil {
		h[name] = append(known, value)
		return room
	}
	if len(room) == 0 {
		room = make([]string, usualFields)
	}
	room[0] = value
	h[name] = room[:1:1]
	return room[1:]
}

// splitField reads one header line. The name is in its canonical form.
func splitField(line string) (name, value string, fault error) {
	name, value, ok := strings.Cut(line, ":")
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return "", "", invalid("a header line is folded")
	case !ok || !token(name):
		return "", "", invalid("the name of a header is none")
	}
	value = trim(value, blank)
	for i := range len(value) {
		if value[i] < ' ' && value[i] != '\t' || value[i] == 0x7f {
			return "", "", invalid("the value of a header has a control character in it")
		}
	}
	return canonical(name), value, nil
}

// canonical returns the name of a header in its canonical form, without a copy
// where most callers write it otherwise.
func canonical(name string) string {
	if known, ok := canonicalNames[name]; ok {
		return known
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// canonicalNames are the names that clients write in lower case at every call.
var canonicalNames = func() map[string]string {
	names := map[string]string{}
	for _, n := range []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Connection", "Content-Length", "Content-Type", "Cookie", "Host",
		"Idempotency-Key", "Origin", "Sec-Fetch-Mode", "Traceparent", "Tracestate", "User-Agent", "X-Request-Id",
		textproto.CanonicalMIMEHeaderKey(agentbus.HeaderRunID), textproto.CanonicalMIMEHeaderKey(agentbus.HeaderTurnID),
		textproto.CanonicalMIMEHeaderKey(agentbus.HeaderParentTurnID), textproto.CanonicalMIMEHeaderKey(agentbus.HeaderForwardedDepth),
		textproto.CanonicalMIMEHeaderKey(agentbus.HeaderForwardedAuthorization), textproto.CanonicalMIMEHeaderKey(agentbus.HeaderSpeaker),
	} {
		names[strings.ToLower(n)] = n
	}
	return names
}()

// parseHost reads which host is asked.
func (w *response) parseHost(r *http.Request, hosts []string) error {
	switch {
	case len(hosts) > 1:
		return invalid("the request has too many Host headers")
	case len(hosts) == 0 && w.modern:
		return invalid("the request lacks the required Host header")
	case len(hosts) == 1:
		r.Host = hosts[0]
	}
	for i := range len(r.Host) {
		if c := r.Host[i]; !alphanumeric(c) && strings.IndexByte("!$%&'()*+,-.:;=[]_~", c) < 0 {
			return invalid("the Host header is no host")
		}
	}
	if r.URL.Host != "" { // it stands before the header (RFC 9112, section 3.2.2)
		r.Host = r.URL.Host
	}
	return nil
}

// parseConnection reads whether another request may follow.
func (w *response) parseConnection(r *http.Request) {
	options := r.Header["Connection"]
	w.keep = !w.modern && listed(options, "keep-alive")
	w.close = listed(options, "close") || !w.modern && !w.keep
	r.Close = w.close
}

// listed reports whether an option is among those of a header.
func listed(values []string, option string) bool {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if sameWord(strings.Trim(one, " \t"), option) {
				return true
			}
		}
	}
	return false
}

// sameWord reports whether s is an ASCII word, in any case. A letter that is one
// of ASCII in another case, such as that of kelvin, is longer (G36).
func sameWord(s, word string) bool { return len(s) == len(word) && strings.EqualFold(s, word) }

// parseBody reads how the body is framed (G36).
func (w *response) parseBody(r *http.Request, f fields) error {
	r.Body = http.NoBody
	var length uint64
	var err error
	switch {
	case len(f.lengths) > 0 && len(f.codings) > 0:
		return invalid("the request has a Content-Length beside a Transfer-Encoding")
	case len(f.lengths) > 1 || len(f.codings) > 1:
		return invalid("the request tells the length of its body twice")
	case len(f.codings) == 1 && (!w.modern || !sameWord(f.codings[0], "chunked")):
		return invalid("the Transfer-Encoding of the request is not chunked alone")
	case len(f.lengths) == 1:
		if length, err = strconv.ParseUint(f.lengths[0], 10, 62); err != nil {
			return invalid("the Content-Length of the request is no number of bytes")
		}
	}
	expects := len(f.expect) == 1 && sameWord(f.expect[0], "100-continue")
	if len(f.expect) > 0 && !expects {
		return invalid("nothing but 100-continue can be expected")
	}
	if chunked := len(f.codings) > 0; chunked || length > 0 {
		w.body = &body{conn: w.conn, response: w, chunked: chunked, left: int64(length), continues: expects && w.modern}
		r.Body, r.ContentLength = w.body, int64(length)
		if chunked {
			r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
		}
	}
	return nil
}

// token reports whether s can be the name of a header or a method (RFC 9110,
// section 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		if !inToken[s[i]] {
			return false
		}
	}
	return s != ""
}

// inToken are the bytes of which a token may be.
var inToken = func() (t [256]bool) {
	for c := range t {
		t[c] = alphanumeric(byte(c)) || strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return t
}()

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// trim returns s without the bytes at its ends that drop reports. strings.Trim makes
// a set of its bytes first, each time, which is most of the work on a short value.
func trim(s string, drop func(byte) bool) string {
	for len(s) > 0 && drop(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && drop(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

func blankOrEnd(c byte) bool { return blank(c) || c == '\r' || c == '\n' }
