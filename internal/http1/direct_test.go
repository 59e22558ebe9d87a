package http1_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus/internal/http1"
	"github.com/agentbus/agentbus/internal/httpx"
)

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errElse = errors.New("handed on")

// direct returns a transport that hands nothing on without saying so.
func direct(t *testing.T) *http1.Direct {
	t.Helper()
	d := &http1.Direct{Else: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errElse })}
	t.Cleanup(d.CloseIdleConnections)
	return d
}

// rawAgent serves each connection with serve, which knows how many came
// before, and returns its URL.
func rawAgent(t *testing.T, serve func(c *net.TCPConn, r *bufio.Reader, nth int)) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for nth := 0; ; nth++ {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close() //nolint:errcheck // the bus notices, or is gone
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				serve(c, bufio.NewReader(c), nth)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return "http://" + l.Addr().String()
}

// asked reads one request, or reports that none came.
func asked(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// answering is an agent that answers every request with raw bytes.
func answering(t *testing.T, raw string, once bool) string {
	t.Helper()
	return rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
		for asked(r) {
			_, _ = io.WriteString(c, raw)
			if once {
				return
			}
		}
	})
}

func post(ctx context.Context, t *testing.T, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// call sends one request and reads its answer whole.
func call(d http.RoundTripper, r *http.Request) (string, error) {
	resp, err := d.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // what was read is compared
	b, err := io.ReadAll(resp.Body)
	return strconv.Itoa(resp.StatusCode) + " " + string(b), err
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestDirectKeepsOneConnection(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Cost")
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL, r.Header.Get("X-Turn"), b)
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Cost", "0.1")
	}))
	agent.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	agent.Start()
	defer agent.Close()
	d := direct(t)
	for i := range 20 {
		r := post(t.Context(), t, agent.URL+"/a%2Fb?q=1", strings.Repeat("x", i))
		r.Header.Set("X-Turn", strconv.Itoa(i))
		resp, err := d.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if want := "POST /a%2Fb?q=1 " + strconv.Itoa(i) + " " + strings.Repeat("x", i); string(b) != want || err != nil {
			t.Fatalf("got %q, %v, want %q", b, err, want)
		}
		if got := resp.Trailer.Get("X-Cost"); got != "0.1" {
			t.Errorf("got trailer %q", got)
		}
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read after the end: %d, %v", n, err)
		}
		_ = resp.Body.Close()
	}
	if got := conns.Load(); got != 1 {
		t.Errorf("got %d connections, want 1", got)
	}
}

func TestDirectReadsEveryFraming(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw, method, want, err string
		closes                 bool
	}{
		"length":                {raw: ok, want: "200 ok"},
		"chunks":                {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", want: "200 ok"},
		"until it closes":       {raw: "HTTP/1.1 200 OK\r\n\r\nok", closes: true, want: "200 ok"},
		"nothing":               {raw: "HTTP/1.1 204 No Content\r\n\r\n", want: "204 "},
		"not modified":          {raw: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", want: "304 "},
		"head":                  {raw: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", method: http.MethodHead, want: "200 "},
		"redirect is an answer": {raw: "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", want: "302 "},
		"informational before":  {raw: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok, want: "200 ok"},
		"switch of protocols":   {raw: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", err: "switched protocols"},
		"garbage":               {raw: "SSH-2.0-OpenSSH\r\n\r\n", err: "no answer of HTTP/1.1"},
		"two lengths":           {raw: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk", err: "Content-Length"},
		"a head without an end": {raw: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 1100), err: "too long"},
		"hints without an end":  {raw: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 50_000), err: "too long"},
		"a broken chunk":        {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", want: "200 ", err: "no hexadecimal number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, d := answering(t, test.raw, test.closes), direct(t)
			for range 2 { // also on a connection that was kept
				r := post(t.Context(), t, url, "ping")
				if test.method != "" {
					r.Method = test.method
				}
				got, err := call(d, r)
				if got != test.want || test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("got %q, %v, want %q, %q", got, err, test.want, test.err)
				}
			}
		})
	}
}

// A connection that cannot carry another call is hung up at once.
func TestDirectDropsConnections(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"bytes behind":          ok + ok,
		"asked to close":        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"and so without a body": "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
		"old protocol":          "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hungUp := make(chan struct{}, 2)
			url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
				asked(r)
				_, _ = io.WriteString(c, raw)
				_, _ = r.ReadByte()
				hungUp <- struct{}{}
			})
			d := direct(t)
			for range 2 {
				if got, err := call(d, post(t.Context(), t, url, "ping")); !strings.HasPrefix(got, "200 ") || err != nil {
					t.Fatalf("got %q, %v", got, err)
				}
				<-hungUp
			}
		})
	}
}

// The end of a kept connection is seen before a call is sent over it.
func TestDirectSeesAnEndBeforeItSends(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *net.TCPConn){
		"closed":      func(c *net.TCPConn) { _ = c.Close() },
		"reset":       func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		"half closed": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"unasked for": func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
		},
		"one byte too": func(c *net.TCPConn) { _, _ = io.WriteString(c, "\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, ended := make(chan struct{}), make(chan struct{})
			url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, nth int) {
				if !asked(r) {
					return
				}
				_, _ = io.WriteString(c, ok)
				if nth == 0 {
					<-now
					end(c)
					close(ended)
				}
				asked(r)
			})
			d := direct(t)
			for i := range 2 {
				if got, err := call(d, post(t.Context(), t, url, "ping")); got != "200 ok" || err != nil {
					t.Fatalf("call %d: got %q, %v", i, got, err)
				}
				if i == 0 {
					close(now)
					<-ended
				}
			}
		})
	}
}

func TestDirectReadsAnEarlyAnswer(t *testing.T) {
	t.Parallel()
	url := rawAgent(t, func(c *net.TCPConn, _ *bufio.Reader, _ int) {
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c) // without this the kernel resets, and the answer may be lost
	})
	d := direct(t)
	if got, err := call(d, post(t.Context(), t, url, strings.Repeat("x", 16<<10))); got != "413 big" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDirectTellsACutAnswer(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"in a body of a length": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
		"between chunks":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
		"in a chunk":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
		"in the head":           "HTTP/1.1 200 OK\r\n",
		"before the head":       "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
				asked(r)
				_, _ = io.WriteString(c, raw)
			})
			if got, err := call(direct(t), post(t.Context(), t, url, "ping")); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
				t.Errorf("got %q, %v, want an unexpected end", got, err)
			}
		})
	}
}

func TestDirectEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	errEnough := errors.New("enough")
	for name, head := range map[string]string{"waiting for the answer": "", "reading it": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\no"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard, hungUp := make(chan struct{}), make(chan struct{})
			url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
				asked(r)
				_, _ = io.WriteString(c, head)
				close(heard)
				_, _ = r.ReadByte() // until the bus hangs up
				close(hungUp)
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { <-heard; cancel(errEnough) }()
			d := direct(t)
			d.HeaderTimeout = time.Minute // its deadline must not outlive the request's end
			got, err := call(d, post(ctx, t, url, "ping"))
			if !errors.Is(err, errEnough) {
				t.Errorf("got %q, %v, want the cause", got, err)
			}
			<-hungUp
		})
	}
}

func TestDirectEndsAnAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	hungUp := make(chan struct{})
	url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
		asked(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\no")
		_, _ = r.ReadByte()
		close(hungUp)
	})
	resp, err := direct(t).RoundTrip(post(t.Context(), t, url, "ping"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice is no fault
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("read after close: %v", err)
	}
	<-hungUp
}

func TestDirectIsPatientForSoLong(t *testing.T) {
	t.Parallel()
	stay := make(chan struct{})
	url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, nth int) {
		asked(r)
		if nth == 0 {
			<-stay // the head does not come
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
		<-stay // the body may take its time
		_, _ = io.WriteString(c, "ok")
	})
	d := direct(t)
	d.HeaderTimeout = 500 * time.Millisecond
	_, err := call(d, post(t.Context(), t, url, "ping"))
	if timeout, is := errors.AsType[net.Error](err); !is || !timeout.Timeout() {
		t.Errorf("got %v, want a timeout", err)
	}
	resp, err := d.RoundTrip(post(t.Context(), t, url, "ping"))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*d.HeaderTimeout, func() { close(stay) })
	b, err := io.ReadAll(resp.Body)
	if string(b) != "ok" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	_ = resp.Body.Close()
}

func TestDirectHandsOn(t *testing.T) {
	t.Parallel()
	d := direct(t)
	for name, change := range map[string]func(*http.Request){
		"https":                   func(r *http.Request) { r.URL.Scheme = "https" },
		"no host":                 func(r *http.Request) { r.URL.Host = "" },
		"a host that is not DNS":  func(r *http.Request) { r.URL.Host = "bücher.example" },
		"a long body":             func(r *http.Request) { r.ContentLength = 16<<10 + 1 },
		"an unknown length":       func(r *http.Request) { r.ContentLength = -1 },
		"a length not told":       func(r *http.Request) { r.ContentLength = 0 },
		"a trailer":               func(r *http.Request) { r.Trailer = http.Header{"X-A": nil} },
		"a wait for 100-continue": func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		"an upgrade":              func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"a header that injects":   func(r *http.Request) { r.Header.Set("X-A", "a\r\nX-B: b") },
		"a method that injects":   func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX-B:" },
	} {
		r := post(t.Context(), t, "http://127.0.0.1:1/", "ping")
		change(r)
		if _, err := call(d, r); !errors.Is(err, errElse) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// noted is a body that tells whether it was closed.
type noted struct {
	io.Reader
	closed bool
}

func (n *noted) Close() error { n.closed = true; return nil }

func TestDirectClosesTheBodyOfARequest(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"nobody listens": "http://127.0.0.1:1/", "answered": answering(t, ok, false)} {
		r, body := post(t.Context(), t, url, ""), &noted{Reader: strings.NewReader("ping")}
		r.Body, r.ContentLength = body, 4
		_, err := call(direct(t), r)
		if (err == nil) != (name == "answered") || !body.closed {
			t.Errorf("%s: %v, closed: %t", name, err, body.closed)
		}
	}
}

// A request goes out in one piece, or not at all: who asked may ask again (G13).
func TestDirectTellsThatNothingWasSent(t *testing.T) {
	t.Parallel()
	got := make(chan int, 1)
	url := rawAgent(t, func(c *net.TCPConn, _ *bufio.Reader, _ int) {
		n, _ := io.Copy(io.Discard, c)
		got <- int(n)
	})
	r := post(t.Context(), t, url, "")
	r.Body, r.ContentLength = io.NopCloser(iotest.ErrReader(errElse)), 4
	if _, err := call(direct(t), r); !errors.Is(err, http1.ErrUnsent) {
		t.Errorf("got %v", err)
	}
	if n := <-got; n != 0 {
		t.Errorf("the agent got %d bytes", n)
	}
}

func TestDirectKeepsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	var together, ended sync.WaitGroup
	together.Add(3)
	ended.Add(2)
	url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
		asked(r)
		together.Done()
		together.Wait()
		_, _ = io.WriteString(c, ok)
		_, _ = r.ReadByte()
		ended.Done()
	})
	d := direct(t)
	d.MaxIdlePerHost = 1
	var calls sync.WaitGroup
	for range 3 {
		r := post(t.Context(), t, url, "ping")
		calls.Go(func() {
			if got, err := call(d, r); got != "200 ok" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	calls.Wait()
	ended.Wait() // two of three are closed
	ended.Add(1) // and the third with CloseIdleConnections
	d.CloseIdleConnections()
	ended.Wait()
}

func TestDirectEndsWhatNobodyUses(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
		asked(r)
		_, _ = io.WriteString(c, ok)
		_, _ = r.ReadByte()
		close(ended)
	})
	d := direct(t)
	d.IdleTimeout = 10 * time.Millisecond
	if got, err := call(d, post(t.Context(), t, url, "ping")); got != "200 ok" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	<-ended
}

// Answers reach who asked, while others leave in the middle.
func TestDirectMixesNothingUp(t *testing.T) {
	t.Parallel()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		for range 4 {
			_, _ = w.Write(b)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer agent.Close()
	d := direct(t)
	var calls sync.WaitGroup
	for w := range 16 {
		calls.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				said := fmt.Sprintf("<%d.%d>", w, i)
				resp, err := d.RoundTrip(post(ctx, t, agent.URL, said))
				if err != nil {
					t.Error(err)
					cancel()
					continue
				}
				if i%3 == 0 { // leaves at any moment, also as the answer ends
					go cancel()
				}
				b, err := io.ReadAll(resp.Body)
				if want := strings.Repeat(said, 4); string(b) != want && (i%3 != 0 || err == nil) || !strings.HasPrefix(want, string(b)) {
					t.Errorf("got %q, %v, want %q", b, err, want)
				}
				_ = resp.Body.Close()
				cancel()
			}
		})
	}
	calls.Wait()
}

func TestDirectSendsWhatItIsGiven(t *testing.T) {
	t.Parallel()
	var raw strings.Builder
	url := rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
		for {
			line, err := r.ReadString('\n')
			raw.WriteString(line)
			if err != nil || line == "\r\n" {
				break
			}
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	r := post(t.Context(), t, url+"/v1/chat?a=b", "")
	r.Body = http.NoBody
	r.Header = http.Header{"User-Agent": nil, "X-A": {"1", "2"}}
	if got, err := call(direct(t), r); got != "200 " || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	want := "POST /v1/chat?a=b HTTP/1.1\r\nHost: " + strings.TrimPrefix(url, "http://") + "\r\nContent-Length: 0\r\nX-A: 1\r\nX-A: 2\r\n\r\n"
	if diff := cmp.Diff(want, raw.String()); diff != "" {
		t.Errorf("request (-want +got)\n%s", diff)
	}
}

// P1: the headers of the protocol are written lower-case, for those who look them
// up so. The request keeps its own names.
func TestProtocolHeadersAreWrittenLowerCase(t *testing.T) {
	t.Parallel()
	agent := func() (string, <-chan string) {
		head := make(chan string, 1)
		return rawAgent(t, func(c *net.TCPConn, r *bufio.Reader, _ int) {
			var raw strings.Builder
			for line := ""; line != "\r\n"; {
				var err error
				if line, err = r.ReadString('\n'); err != nil {
					return
				}
				raw.WriteString(line)
			}
			head <- raw.String()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}), head
	}
	plain := &http.Transport{DisableKeepAlives: true}
	for name, through := range map[string]http.RoundTripper{
		"direct": direct(t), "handed on": &http1.Direct{Else: plain}, "any other": httpx.Lowercase(plain),
	} {
		url, head := agent()
		r := post(t.Context(), t, url+"/", "")
		r.Body, r.Header = http.NoBody, http.Header{"X-Tangle-Forwarded-Depth": {"3"}, "X-Kagent-Root-Context-Id": {"c"}, "Traceparent": {"t"}, "X-Other": {"o"}}
		if name == "handed on" {
			r.Header.Set("Expect", "100-continue")
		}
		if got, err := call(through, r); got != "200 " || err != nil {
			t.Fatalf("%s: got %q, %v", name, got, err)
		}
		raw := <-head
		for _, line := range []string{"x-tangle-forwarded-depth: 3", "x-kagent-root-context-id: c", "traceparent: t", "X-Other: o"} {
			if !strings.Contains(raw, "\r\n"+line+"\r\n") {
				t.Errorf("%s: no line %q in\n%s", name, line, raw)
			}
		}
		if r.Header.Get("X-Tangle-Forwarded-Depth") != "3" {
			t.Errorf("%s: the request became %v", name, r.Header)
		}
	}
}
