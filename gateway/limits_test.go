package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
)

// TestBodySize: G3, a body of exactly the limit passes, one byte more is 413,
// whether its length is declared or counted.
func TestBodySize(t *testing.T) {
	t.Parallel()
	const limit = 200 << 10
	a := newAgent(t, "tool", nil)
	b := newBus(t, func(c *gateway.Config) { c.MaxBody = limit }, a)
	for _, chunked := range []bool{false, true} {
		for _, size := range []int{0, 1, 64 << 10, 64<<10 + 512, limit - 1, limit, limit + 1, 2 * limit} {
			body := strings.Repeat("x", size)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/agents/tool/x", io.NopCloser(strings.NewReader(body)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+aliceKey)
			if r.ContentLength = int64(size); chunked {
				r.ContentLength = -1
			}
			resp, err := b.client.Do(r)
			if err != nil {
				t.Errorf("%d bytes, chunked %t: %v", size, chunked, err)
				continue
			}
			said, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got := answer{status: resp.StatusCode, header: resp.Header, body: string(said)}
			if size > limit {
				refused(t, strconv.Itoa(size), got, http.StatusRequestEntityTooLarge, agentbus.CodeRequestTooLarge)
				continue
			}
			if got.status != http.StatusOK || a.next(t).body != body {
				t.Errorf("%d bytes, chunked %t: %v", size, chunked, got)
			}
		}
	}
}

// TestDeclaredSize: G3, what is declared over the limit is refused before any of
// it is read.
func TestDeclaredSize(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil, newAgent(t, "tool", nil))
	for _, length := range []string{"4194305", "9223372036854775807"} {
		got := b.raw("POST /agents/tool/x HTTP/1.1\r\nHost: bus\r\n" + asAlice + "\r\nContent-Length: " + length + "\r\n\r\n")
		refused(t, length, got, http.StatusRequestEntityTooLarge, agentbus.CodeRequestTooLarge)
	}
}

// TestSlowBody: G3, a body that drips is cut at its time, and the agent is not
// called; who hangs up in it leaves nothing behind.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "tool", nil)
	b := newBus(t, func(c *gateway.Config) { c.BodyTimeout = 500 * time.Millisecond }, a)
	head := "POST /agents/tool/x HTTP/1.1\r\nHost: bus\r\n" + asAlice + "\r\n"
	for name, rest := range map[string]string{
		"length": "Content-Length: 10\r\n\r\nabc", "chunked": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "nothing": "Content-Length: 4194304\r\n\r\n",
	} {
		refused(t, name, b.raw(head+rest), http.StatusBadRequest, agentbus.CodeInvalidRequest)
	}
	for _, rest := range []string{"Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\nzz\r\n"} {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, head+rest)
		_ = c.Close()
	}
	if n := a.executions(); n != 0 {
		t.Errorf("the agent was called %d times", n)
	}
	// A connection whose body came in time serves on, however long it lives.
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	for range 3 {
		_, _ = io.WriteString(c, head+"Content-Length: 3\r\n\r\nabc")
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		<-time.After(600 * time.Millisecond) // past the time of the last body
	}
}

// TestShed: G8, above the requests it may serve at once the bus says overloaded,
// and when to come back.
func TestShed(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) { <-release; answerWith(http.StatusOK, completion)(w, r) })
	b := newBus(t, func(c *gateway.Config) { c.InFlight = 2 }, a)
	var served sync.WaitGroup
	for range 2 {
		served.Go(func() {
			if got := b.call("critic"); got.status != http.StatusOK {
				t.Errorf("within the limit: %v", got)
			}
		})
		a.next(t)
	}
	refused(t, "over", b.call("critic"), http.StatusServiceUnavailable, agentbus.CodeOverloaded)
	close(release)
	served.Wait()
	if got := b.call("critic"); got.status != http.StatusOK {
		t.Errorf("once there is room: %v", got)
	}
}

// TestTimes: G3, an agent that is silent for too long, or takes too long, is
// told to stop: 504 before an answer, a cut after it began.
func TestTimes(t *testing.T) {
	t.Parallel()
	told := make(chan struct{}, 8)
	silent := newAgent(t, "silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); told <- struct{}{} })
	stalls := newAgent(t, "stalls", func(w http.ResponseWriter, r *http.Request) {
		streamWith(helloEvent)(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		told <- struct{}{}
	})
	drips := newAgent(t, "drips", func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, ": drip\n\n")
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
		told <- struct{}{}
	})
	b := newBus(t, func(c *gateway.Config) { c.CallTimeout, c.IdleTimeout = 2*time.Second, 500*time.Millisecond }, silent, stalls, drips)
	late := func(b *bus, name, run, limit string) {
		t.Helper()
		got := b.call(name, turn(run, "t")...)
		refused(t, run, got, http.StatusGatewayTimeout, agentbus.CodeDeadlineExceeded)
		if next := gjson.Get(got.body, "error.explain.next").Str; !strings.HasSuffix(next, "raise "+limit) {
			t.Errorf("%s: told to %q, want %s", run, next, limit)
		}
	}
	late(b, "silent", "silent", "limits.call_timeout")
	for _, name := range []string{"stalls", "drips"} {
		got := b.stream(name, turn(name, "t")...)
		if got.err == nil || !strings.Contains(got.body, `"code":"deadline_exceeded"`) {
			t.Errorf("%s: %v", name, got)
		}
	}
	idle := newBus(t, func(c *gateway.Config) { c.IdleTimeout = 500 * time.Millisecond }, stalls) // its only limit that is near
	late(idle, "stalls", "stalls2", "limits.stream_idle")
	begins := newAgent(t, "begins", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	way := transport(t)
	way.ResponseHeaderTimeout, begins.Transport = 200*time.Millisecond, way
	late(newBus(t, nil, begins), "begins", "begins", "limits.response_header")
	for range 4 {
		<-told
	}
	for run, at := range map[string]*bus{"silent": b, "stalls": b, "drips": b, "stalls2": idle} {
		if r := at.one(run, agentbus.CallVoided); r.Code != agentbus.CodeDeadlineExceeded || r.Cost != 0 {
			t.Errorf("%s: recorded as %+v", run, r)
		}
	}
}

// TestSlowHandshake: G3, an agent's address that accepts a connection, and does not speak
// TLS, runs into no limit of the configuration: none is named.
func TestSlowHandshake(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	a, way := newAgent(t, "critic", nil), transport(t)
	way.TLSHandshakeTimeout, a.Transport = 100*time.Millisecond, way
	a.URL = &url.URL{Scheme: "https", Host: mute.Addr().String()}
	got := newBus(t, nil, a).call("critic")
	refused(t, "a slow handshake", got, http.StatusGatewayTimeout, agentbus.CodeDeadlineExceeded)
	if said, next := gjson.Get(got.body, "error.message").Str, gjson.Get(got.body, "error.explain.next").Str; !strings.Contains(said, "TLS handshake") || strings.Contains(next, "limits.") {
		t.Errorf("told %q and %q", said, next)
	}
}

// TestSlowReader: G3, a caller that does not read its answer does not hold it
// for ever; the call is settled, and the answer there for the retry.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	body := `{"choices":[],"x":"` + strings.Repeat("x", 12<<20) + `"}`
	a := newAgent(t, "critic", answerWith(http.StatusOK, body))
	b := newBus(t, func(c *gateway.Config) { c.IdleTimeout = 2 * time.Second }, a)
	for range 2 { // the answer, then its copy from memory
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, rawPost(chatRoute, ask("critic"), turn("r", "t")...)); err != nil {
			t.Fatal(err)
		}
		b.one("r", agentbus.CallSettled)
	}
	b.await("r", func([]agentbus.CallRecord) bool { return b.InFlight() == 0 })
	if got := b.call("critic", turn("r", "t")...); got.body != body {
		t.Errorf("the retry: %d bytes, %v", len(got.body), got.err)
	}
}

// TestSlowCaller: G3, a caller that takes longer than an agent may be silent does
// not end the agent's stream, nor does that count against the agent (G13).
func TestSlowCaller(t *testing.T) {
	t.Parallel()
	const idle = 2 * time.Second
	w := &slowCaller{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), takes: idle + idle/4}
	a := newAgent(t, "critic", func(to http.ResponseWriter, r *http.Request) {
		streamWith(helloEvent)(to, r)
		_ = http.NewResponseController(to).Flush()
		select {
		case <-w.begun:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(to, strings.TrimPrefix(stream, helloEvent))
	})
	b := newBus(t, func(c *gateway.Config) { c.IdleTimeout = idle }, a)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, chatRoute, strings.NewReader(askStream("critic")))
	r.Header.Set("Authorization", "Bearer "+aliceKey)
	b.ServeHTTP(w, r)
	if diff := cmp.Diff(stream, w.Body.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{0}, failures(a)); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

// A slowCaller takes its time for the first piece of an answer.
type slowCaller struct {
	*httptest.ResponseRecorder
	begun chan struct{}
	takes time.Duration
	once  sync.Once
}

func (s *slowCaller) Write(p []byte) (int, error) {
	s.once.Do(func() {
		close(s.begun)
		<-time.After(s.takes)
	})
	return s.ResponseRecorder.Write(p) //nolint:wrapcheck // it stands in for it
}
