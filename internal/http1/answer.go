package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

var errLongHeader = errors.New("the head of the answer is too long")

// readAnswer reads the head of an answer to r. It is as tolerant as net/http is:
// agents are what they are.
//
// What it may have is what is left of most.
func (c *directConn) readAnswer(r *http.Request, most *int) (*http.Response, error) {
	for scanned := 0; ; {
		rest := c.in.rest()
		n := endOfHead(rest, scanned)
		if n > *most || n == 0 && len(rest) > *most {
			return nil, errLongHeader
		}
		if n > 0 {
			*most -= n
			resp := &http.Response{Request: r}
			return resp, parseAnswer(resp, string(c.in.take(n)))
		}
		scanned = len(rest)
		if err := c.in.fill(c.Conn); err != nil {
			if scanned > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// endOfHead returns where the header block that begins b ends, with an empty line;
// 0: it is not whole. What stands before scanned was looked at.
func endOfHead(b []byte, scanned int) int {
	for at := max(scanned-2, 0); ; at++ { // the end of a line, and the carriage return of an empty one
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0
		}
		at += i
		switch {
		case at+1 < len(b) && b[at+1] == '\n':
			return at + 2
		case at+2 < len(b) && b[at+1] == '\r' && b[at+2] == '\n':
			return at + 3
		}
	}
}

// parseAnswer reads a header block into resp.
func parseAnswer(resp *http.Response, head string) error {
	line, lines, _ := strings.Cut(head, "\n")
	version, status, ok := strings.Cut(strings.TrimRight(line, "\r"), " ")
	var known bool
	if resp.ProtoMajor, resp.ProtoMinor, known = http.ParseHTTPVersion(version); !ok || !known {
		return errors.New("what the agent sent is no answer of HTTP/1.1")
	}
	resp.Proto, resp.Status = version, strings.TrimLeft(status, " ")
	code, _, _ := strings.Cut(resp.Status, " ")
	n, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 {
		return errors.New("the status of the answer is no number of three digits")
	}
	resp.StatusCode = int(n)
	if resp.Header, err = parseAnswerFields(lines); err != nil {
		return err
	}
	connection := resp.Header["Connection"]
	stays := resp.ProtoAtLeast(1, 1) || resp.ProtoAtLeast(1, 0) && listed(connection, "keep-alive")
	resp.Close = !stays || listed(connection, "close")
	return nil
}

// parseAnswerFields reads header lines, of which one may go on in the next.
func parseAnswerFields(s string) (http.Header, error) {
	n := min(strings.Count(s, "\n"), usualFields)
	h, room := make(http.Header, n), make([]string, n)
	for s != "" {
		var line string
		line, s, _ = strings.Cut(s, "\n")
		if line = strings.TrimRight(line, "\r \t"); line == "" {
			continue
		}
		if folded(s) {
			line, s = unfold(line, s)
		}
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.Contains(name, " ") {
			continue // it is no header that could be passed on
		}
		if !ok || !token(name) {
			return nil, errors.New("a header line of the answer has no name")
		}
		room = addField(h, room, canonical(name), strings.TrimLeft(value, " \t"))
	}
	return h, nil
}

// folded reports whether the first line of s goes on with the one before it.
func folded(s string) bool { return s != "" && (s[0] == ' ' || s[0] == '\t') }

// unfold returns a header line with those at the beginning of s that go on with
// it, and the rest of s.
func unfold(line, s string) (whole, rest string) {
	var b strings.Builder
	b.WriteString(line)
	for folded(s) {
		line, s, _ = strings.Cut(s, "\n")
		b.WriteByte(' ')
		b.WriteString(strings.TrimLeft(strings.TrimRight(line, "\r \t"), " \t"))
	}
	return b.String(), s
}

// An answerBody is the body of an answer. It gives the connection back at its end.
type answerBody struct {
	direct   *Direct
	conn     *directConn // nil once it is given back
	addr     string
	ctx      context.Context //nolint:containedctx // of the request, whose answer this is
	stop     func() bool
	response *http.Response
	reuse    bool
	err      error // what Read returns after the end

	chunked bool
	chunks  chunks
	left    int64 // of a body that is not chunked; below 0: it goes on until the connection ends
}

// frame reads how the body is framed, and makes it that of the answer. An answer
// without one gives the connection back.
func (b *answerBody) frame() error {
	resp := b.response
	codings := resp.Header["Transfer-Encoding"]
	delete(resp.Header, "Transfer-Encoding")
	if len(codings) > 0 && resp.ProtoAtLeast(1, 1) {
		resp.Trailer = announced(resp.Header)
	}
	switch length, err := lengthOf(resp.Header); {
	case err == nil && resp.Request.Method == http.MethodHead:
		resp.ContentLength = length
	case bodiless(resp.StatusCode):
	case len(codings) > 0 && resp.ProtoAtLeast(1, 1):
		if len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") {
			return errors.New("the Transfer-Encoding of the answer is not chunked alone")
		}
		b.chunked, b.chunks.lenient, resp.TransferEncoding, resp.ContentLength = true, true, []string{"chunked"}, -1
		delete(resp.Header, "Content-Length")
	case err != nil:
		return err
	default:
		b.left, resp.ContentLength, resp.Close = length, length, resp.Close || length < 0
	}
	b.reuse = b.reuse && !resp.Close
	if !b.chunked && b.left == 0 {
		resp.Body = http.NoBody
		b.end(nil)
		return nil
	}
	resp.Body = b
	return nil
}

// lengthOf returns the length that h tells; -1: none.
func lengthOf(h http.Header) (int64, error) {
	lengths := h["Content-Length"]
	if len(lengths) == 0 {
		return -1, nil
	}
	for _, l := range lengths[1:] {
		if l != lengths[0] {
			return 0, errors.New("the answer has two Content-Lengths that differ")
		}
	}
	h["Content-Length"] = lengths[:1]
	n, err := strconv.ParseUint(lengths[0], 10, 62)
	if err != nil {
		return 0, errors.New("the Content-Length of the answer is no number of bytes")
	}
	return int64(n), nil
}

// announced takes Trailer out of h, and returns what it announces.
func announced(h http.Header) http.Header {
	lists := h["Trailer"]
	if len(lists) == 0 {
		return nil
	}
	delete(h, "Trailer")
	trailers := http.Header{}
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			trailers[canonical(strings.Trim(name, " \t"))] = nil
		}
	}
	return trailers
}

// Read reads more of it. What has come already is read in one go.
func (b *answerBody) Read(p []byte) (n int, err error) {
	if b.conn == nil || len(p) == 0 {
		return 0, b.err
	}
	if b.chunked {
		n, err = b.readChunks(p)
	} else {
		n, err = b.readPlain(p)
	}
	if err != nil {
		b.end(err)
		err = b.err
	}
	return n, err
}

func (b *answerBody) readPlain(p []byte) (int, error) {
	if b.left >= 0 {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.conn.in.read(b.conn.Conn, p)
	switch {
	case b.left < 0:
	case b.left == int64(n):
		b.left, err = 0, io.EOF
	default:
		b.left -= int64(n)
		err = cut(err)
	}
	return n, err
}

func (b *answerBody) readChunks(p []byte) (n int, err error) {
	in, k := &b.conn.in, &b.chunks
	for n < len(p) {
		if k.left == 0 {
			if n > 0 && !k.ready(in) {
				return n, nil
			}
			if err := k.next(in, b.conn.Conn, maxDirectHeader); err != nil {
				b.told()
				return n, err
			}
		}
		if n > 0 && len(in.rest()) == 0 {
			return n, nil
		}
		got, err := in.read(b.conn.Conn, p[n:min(int64(len(p)), int64(n)+k.left)])
		n, k.left = n+got, k.left-int64(got)
		if err != nil {
			return n, cut(err)
		}
	}
	return n, nil
}

// told adds the trailers that came to the answer.
func (b *answerBody) told() {
	if len(b.chunks.trailers) == 0 {
		return
	}
	if b.response.Trailer == nil {
		b.response.Trailer = http.Header{}
	}
	maps.Copy(b.response.Trailer, b.chunks.trailers)
}

// Buffered returns how much of the answer is here already.
func (b *answerBody) Buffered() int {
	if b.conn == nil {
		return 0
	}
	return len(b.conn.in.rest())
}

// Close ends the answer. One that was not read to its end takes its connection
// with it.
func (b *answerBody) Close() error {
	if b.conn != nil {
		b.reuse = false
		b.end(http.ErrBodyReadAfterClose)
	}
	return nil
}

func (b *answerBody) end(err error) {
	c := b.conn
	b.conn = nil
	if b.err = err; err == nil {
		b.err = io.EOF
	}
	whole := b.err == io.EOF //nolint:errorlint // io.EOF is returned as it is
	if !b.stop() {           // the request ended first: its deadline may still be set on the connection
		if !whole {
			b.err = errors.Join(context.Cause(b.ctx), b.err)
		}
		whole = false
	}
	if whole && b.reuse && len(c.in.rest()) == 0 {
		b.direct.keep(b.addr, c)
		return
	}
	_ = c.Close()
}
