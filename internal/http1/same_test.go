package http1_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen is what a caller sees of an answer.
type seen struct {
	Before  []int // statuses of what came before it
	Status  int
	Header  http.Header // but for Date
	Length  int64
	Coding  []string
	Body    string
	Err     string
	Trailer http.Header
	Kept    bool // the connection takes another request
}

// ask sends a raw request, and then another one.
func ask(t *testing.T, addr, raw string) (s seen) {
	t.Helper()
	l := dial(t, addr)
	l.say(t, raw)
	method, _, _ := strings.Cut(raw, " ")
	for {
		resp, err := http.ReadResponse(l.r, &http.Request{Method: method})
		if err != nil {
			s.Err = err.Error()
			return s
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			s.Before = append(s.Before, resp.StatusCode)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Header.Del("Date")
		if resp.Header.Get("Connection") == "close" { // it is told by Kept, and left out of answers of 1.1
			resp.Header.Del("Connection")
		}
		s.Status, s.Header, s.Length, s.Coding, s.Body, s.Trailer = resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, string(body), resp.Trailer
		if err != nil {
			s.Err = err.Error()
			return s
		}
		break
	}
	if s.Status >= 400 && s.Header.Get("Handled") == "" { // a refusal of the server's own
		return seen{Status: s.Status, Err: s.Err}
	}
	_, _ = io.WriteString(l, "GET /kept HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") // it may be closed
	resp, err := http.ReadResponse(l.r, nil)
	if s.Kept = err == nil && resp.Header.Get("Kept") == "yes"; err == nil {
		_ = resp.Body.Close()
	}
	return s
}

// standard serves h by net/http until the end of the test.
func standard(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func write(w http.ResponseWriter, body string) { _, _ = io.WriteString(w, body) }

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// told is h behind a header of the answer.
func told(name, value string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		h(w, r)
	}
}

func gives(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		write(w, body)
	}
}

// describe answers with what it knows of the request.
func describe(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s %s %q %q %v %v %d %v %v %q %t", r.Method, r.RequestURI, r.URL, r.Host, r.Proto, r.Header, r.ContentLength, r.TransferEncoding, r.Close, body, err == nil)
}

// answers are handlers that every request of the table below meets.
var answers = map[string]http.HandlerFunc{ //nolint:gochecknoglobals // a table
	"nothing":           func(http.ResponseWriter, *http.Request) {},
	"describe":          describe,
	"short":             gives(200, "hello"),
	"typed":             told("Content-Type", "a/b", gives(200, "hello")),
	"typed nil":         func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; write(w, "hello") },
	"coded":             told("Content-Encoding", "gzip", gives(200, "hello")),
	"held":              gives(200, strings.Repeat("<html>", 100)),
	"large":             gives(200, "<html>"+strings.Repeat("x", 5000)),
	"huge":              gives(200, strings.Repeat("x", 300<<10)),
	"no such status":    gives(599, "hello"),
	"204":               gives(204, ""),
	"204 with a length": told("Content-Length", "5", gives(204, "")),
	"204 with a body":   gives(204, "hello"),
	"304":               told("Etag", `"a"`, told("Content-Type", "a/b", told("Content-Length", "5", gives(304, "")))),
	"404":               http.NotFound,
	"redirect":          func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/b", http.StatusFound) },
	"length":            told("Content-Length", "5", gives(200, "hello")),
	"length, too short": told("Content-Length", "9", gives(200, "hello")),
	"length, too long":  told("Content-Length", "3", gives(200, "hello")),
	"length 0":          told("Content-Length", "0", gives(200, "")),
	"close":             told("Connection", "close", gives(200, "hello")),
	"a status only":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
	"two statuses": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusNotFound)
	},
	"a header too late": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("Late", "x")
	},
	"flush, nothing":    func(w http.ResponseWriter, _ *http.Request) { flush(w) },
	"flush, then write": func(w http.ResponseWriter, _ *http.Request) { flush(w); write(w, "hello") },
	"write, then flush": func(w http.ResponseWriter, _ *http.Request) { write(w, "hello"); flush(w); flush(w); write(w, "") },
	"many small": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3000 {
			write(w, fmt.Sprint(i, ","))
		}
	},
	"many flushed": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 50 {
			write(w, fmt.Sprint(i, ","))
			flush(w)
		}
	},
	"small, then huge": func(w http.ResponseWriter, _ *http.Request) {
		write(w, strings.Repeat("y", 600))
		write(w, strings.Repeat("x", 100<<10))
	},
	"injection by value":  told("A", "b\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK", gives(200, "hello")),
	"injection by name":   told("A: b\r\nC", "d", gives(200, "hello")),
	"a value of obs-text": told("A", "\xe4\xf6", gives(200, "hello")),
	"names in any case": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["x-LOW"] = []string{"1", "2"}
		write(w, "hello")
	},
	"trailers": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A, b")
		w.Header().Add("Trailer", "Content-Length")
		write(w, "hello")
		w.Header().Set("A", "1")
		w.Header().Set("B", "2\r\n3")
	},
	"trailers unannounced": func(w http.ResponseWriter, _ *http.Request) {
		write(w, "hello")
		flush(w)
		w.Header().Set(http.TrailerPrefix+"a", "1")
	},
	"103": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>")
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		write(w, "hello")
	},
	"reads, then answers": func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); write(w, "hello") },
	"reads a little":      func(w http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)); write(w, "hello") },
	"closes the body":     func(w http.ResponseWriter, r *http.Request) { _ = r.Body.Close(); write(w, "hello") },
	"copies":              func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
}

// requests are what each of them is asked.
var requests = map[string]string{ //nolint:gochecknoglobals // a table
	"GET":                          "GET /a?b=%20c HTTP/1.1\r\nHost: x\r\nA: 1\r\na: 2\r\nB: \t \r\nc:\xe4\r\n\r\n",
	"HEAD":                         "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n",
	"POST":                         "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nworld",
	"described: POST of nothing":   "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
	"chunked":                      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nwor\r\n02 \r\nld\r\n0\r\n\r\n",
	"close":                        "GET /a HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n",
	"1.0":                          "GET /a HTTP/1.0\r\n\r\n",
	"1.0, HEAD":                    "HEAD /a HTTP/1.0\r\n\r\n",
	"1.0, keep-alive":              "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"1.0, POST":                    "POST /a HTTP/1.0\r\nHost: x\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nworld",
	"described: absolute-form":     "GET http://y/a?b HTTP/1.1\r\nHost: x\r\n\r\n",
	"described: asterisk-form":     "DESCRIBE * HTTP/1.1\r\nHost: x\r\n\r\n",
	"described: authority-form":    "CONNECT y:80 HTTP/1.1\r\nHost: y:80\r\n\r\n",
	"described: a host of IPv6":    "GET //a//b/../c;d HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
	"described: an empty host":     "GET /%2f%20 HTTP/1.1\r\nHost:\r\n\r\n",
	"described: any method":        "M-SEARCH /a HTTP/1.1\r\nHost: x\r\n\r\n",
	"100-continue":                 "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\nworld",
	"described: a cut escape":      "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
	"described: not in a URL":      "GET a HTTP/1.1\r\nHost: x\r\n\r\n",
	"described: a bad host":        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
	"described: no host":           "GET / HTTP/1.1\r\n\r\n",
	"described: two hosts":         "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
	"described: length of nothing": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\n",
	"described: a length too long": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
	"described: a bad chunk":       "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
	"described: 17 digits":         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000005\r\nworld\r\n0\r\n\r\n",
	"described: CR in a chunk":     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;\rX\r\nworld\r\n0\r\n\r\n",
	"described: a longer chunk":    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nworld\r\n0\r\n\r\n",
	"described: kelvin":            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chun\u212aed\r\n\r\n0\r\n\r\n",
	"described: long s":            "GET /a HTTP/1.1\r\nHost: x\r\nConnection: clo\u017fe\r\n\r\n",
}

// readers are the handlers that read the whole body.
const readers = "describe, reads, then answers, copies"

// meant changes what net/http answers to what is meant here, where that is
// another thing, and says why.
func meant(handler, request string, want, got *seen) {
	switch {
	case request == "kelvin": // every fault of the framing has the same code
		want.Status = http.StatusBadRequest
	case request == "chunked" && !strings.Contains(readers, handler): // what nobody reads is not read on: the caller comes back
		want.Kept = false
	case handler == "103" && strings.HasPrefix(request, "1.0"): // RFC 9110, section 15.2: there is none in HTTP/1.0
		want.Before = nil
	case handler == "reads a little" && request == "100-continue": // what has come all the same is left out
		want.Kept = true
	case handler == "trailers" && strings.HasPrefix(request, "1.0"): // where there are no trailers the length is told
		*want = *got
	}
	if strings.HasSuffix(request, "HEAD") && want.Status == http.StatusOK && want.Length < 0 && got.Length > 0 { // what was written is counted, however much it is
		want.Length = got.Length
		want.Header["Content-Length"] = got.Header["Content-Length"]
	}
}

// TestSameAsStandard: an answer is what net/http would make of it, but for what
// is meant otherwise. All handlers meet the first requests, the others one.
func TestSameAsStandard(t *testing.T) {
	t.Parallel()
	for name, h := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/kept" {
					w.Header().Set("Kept", "yes")
					return
				}
				w.Header().Set("Handled", "yes")
				h(w, r)
			}
			ours, theirs := serve(t, kept), standard(t, http.HandlerFunc(kept))
			for what, raw := range requests {
				if strings.HasPrefix(what, "described: ") && name != "describe" {
					continue
				}
				got, want := ask(t, ours, raw), ask(t, theirs, raw)
				meant(name, strings.TrimPrefix(what, "described: "), &want, &got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
		})
	}
}
