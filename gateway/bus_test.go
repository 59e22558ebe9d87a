package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/internal/sqlitetest"
	"github.com/agentbus/agentbus/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// The keys of every bus here, and the credential an agent has of its own. Each
// holds the canary, so that one search finds any of them where it must not be (P19).
const (
	canary    = "sk-CANARY-"
	aliceKey  = canary + "alice" // a user
	bobKey    = canary + "bob"   // another
	relayKey  = canary + "relay" // an agent that may forward the credential of others
	agentKey  = canary + "agent" // what the gateway sends to an agent as its own
	asAlice   = "Authorization: Bearer " + aliceKey
	asBob     = "Authorization: Bearer " + bobKey
	asRelay   = "Authorization: Bearer " + relayKey
	forAlice  = "x-tangle-forwarded-authorization: Bearer " + aliceKey
	chatRoute = "/v1/chat/completions"
)

// A bus is a gateway on a real server over a real store.
type bus struct {
	*gateway.Gateway
	t      *testing.T
	store  *sqlite.Store
	path   string // of the store's file
	url    string
	addr   string
	client *http.Client
	log    *logged
}

// A logged is what a gateway has logged.
type logged struct {
	sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

// text returns what was logged so far.
func (l *logged) text() string {
	l.Lock()
	defer l.Unlock()
	return l.String()
}

// openStore opens a store of the test's own.
func openStore(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: sqlitetest.Prepare(t, path)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// newBus starts a bus of agents. change, which may be nil, alters its configuration.
func newBus(t *testing.T, change func(*gateway.Config), agents ...*agent) *bus {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus.db")
	return busOver(t, openStore(t, path), path, change, agents...)
}

// busOver starts a bus of agents over an open store.
func busOver(t *testing.T, store *sqlite.Store, path string, change func(*gateway.Config), agents ...*agent) *bus {
	t.Helper()
	keys, err := identity.New(identity.Config{Keys: store, Static: []identity.StaticKey{
		{Principal: agentbus.Principal{ID: "alice"}, Secret: agentbus.NewCredential(aliceKey)},
		{Principal: agentbus.Principal{ID: "bob"}, Secret: agentbus.NewCredential(bobKey)},
		{Principal: agentbus.Principal{ID: "relay", InterAgent: true}, Secret: agentbus.NewCredential(relayKey)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	targets := make([]*gateway.Target, len(agents))
	aliases := map[string]*gateway.Target{}
	for i, a := range agents {
		targets[i] = a.Target
		for _, alias := range a.aliases {
			aliases[alias] = a.Target
		}
	}
	b := &bus{t: t, store: store, path: path, log: &logged{}}
	cfg := gateway.Config{
		Router: gateway.NewTable(targets, aliases), Identifier: keys, Ledger: store, Recorder: store, Owner: "this",
		Logger: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	if b.Gateway, err = gateway.New(cfg); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(b.Gateway)
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	b.client = &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	b.url, b.addr = srv.URL, srv.Listener.Addr().String()
	t.Cleanup(func() { transport.CloseIdleConnections(); srv.Close() })
	return b
}

// An agent is a real server and how the gateway calls it.
type agent struct {
	*gateway.Target
	aliases []string
	heard   chan *heard // every request, as it arrived; the test reads what it cares about
	mu      sync.Mutex  // guards count
	count   int         // requests so far
}

// A heard is a request as an agent got it.
type heard struct {
	method, uri string
	header      http.Header
	body        string
}

// transport is how the gateways of these tests reach agents.
func transport(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// newAgent starts an agent that answers with serve; nil: with a chat completion.
func newAgent(t *testing.T, name string, serve http.HandlerFunc) *agent {
	t.Helper()
	a := &agent{heard: make(chan *heard, 1024)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.hear(&heard{r.Method, r.RequestURI, r.Header.Clone(), string(body)})
		r.Body = io.NopCloser(bytes.NewReader(body))
		if serve == nil {
			answerWith(http.StatusOK, completion)(w, r)
			return
		}
		serve(w, r)
	}))
	t.Cleanup(srv.Close)
	a.Target = target(t, name, srv.URL+"/v1")
	return a
}

// target is how a gateway calls the agent of that name at base.
func target(t *testing.T, name, base string) *gateway.Target {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return &gateway.Target{Name: name, Kind: "sandbox", URL: u, Transport: transport(t)}
}

func (a *agent) hear(h *heard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	select {
	case a.heard <- h:
	default: // nobody reads that far
	}
}

// executions returns how often the agent was called.
func (a *agent) executions() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// last returns the next request that the agent got.
func (a *agent) next(t *testing.T) *heard {
	t.Helper()
	select {
	case h := <-a.heard:
		return h
	case <-time.After(patience):
		t.Fatalf("agent %s was not called", a.Name)
		return nil
	}
}

// newRawAgent starts an agent on a bare socket: serve gets each connection with
// the first request on it read.
func newRawAgent(t *testing.T, name string, serve func(c net.Conn, r *http.Request)) *agent {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{heard: make(chan *heard, 1024)}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(patience))
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				body, _ := io.ReadAll(r.Body)
				a.hear(&heard{r.Method, r.RequestURI, r.Header, string(body)})
				serve(c, r)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	a.Target = target(t, name, "http://"+l.Addr().String()+"/v1")
	return a
}

// completion is a chat completion of 100 tokens in and 20 out.
const completion = `{"id":"c1","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],` +
	`"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}}`

// The events of a stream with the same usage.
const (
	helloEvent = `data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"}}]}` + "\n\n"
	loEvent    = `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}` + "\n\n"
	usageEvent = `data: {"id":"c1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
	stream     = helloEvent + loEvent + usageEvent + doneEvent
)

// price makes a call of 100 tokens in and 20 out cost 100·3 + 20·15 + 7 = 607 micro-dollars.
var price = agentbus.Price{Input: 3_000_000, Output: 15_000_000, Call: 7}

const priced = agentbus.Micros(607)

// answerWith answers every request with a body of JSON.
func answerWith(status int, body string) http.HandlerFunc {
	return answerAs("application/json", status, body)
}

// streamWith answers every request with a body of server-sent events.
func streamWith(body string) http.HandlerFunc {
	return answerAs("text/event-stream", http.StatusOK, body)
}

func answerAs(contentType string, status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// An answer is what a caller read.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	err     error // of reading the body
}

// code returns the code of an error answer.
func (a answer) code() agentbus.Code { return agentbus.Code(gjson.Get(a.body, "error.code").Str) }

// String says enough of an answer for a failed test.
func (a answer) String() string { return fmt.Sprintf("%d %.300s %v", a.status, a.body, a.err) }

// open sends a request and returns its answer with the body still to be read.
// Headers are given as "name: value".
func (b *bus) open(method, path, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("TE", "trailers") // or the cost of a stream is not told
	if body == "" {
		r.Body = http.NoBody
	}
	maps.Copy(r.Header, headerOf(headers))
	return b.client.Do(r)
}

// headerOf reads lines of "name: value" as they are, without making names canonical.
func headerOf(lines []string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h[name] = append(h[name], value)
	}
	return h
}

// send sends a request and returns its whole answer.
func (b *bus) send(method, path, body string, headers ...string) answer {
	resp, err := b.open(method, path, body, headers...)
	if err != nil {
		b.t.Errorf("%s %s: %v", method, path, err)
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, resp.Trailer, string(got), err}
}

// call asks an agent as alice.
func (b *bus) call(name string, headers ...string) answer {
	return b.send(http.MethodPost, chatRoute, ask(name), append([]string{asAlice}, headers...)...)
}

// stream asks an agent as alice for a stream.
func (b *bus) stream(name string, headers ...string) answer {
	return b.send(http.MethodPost, chatRoute, askStream(name), append([]string{asAlice}, headers...)...)
}

func ask(name string) string {
	return `{"model":` + strconv.Quote(name) + `,"messages":[{"role":"user","content":"hello"}]}`
}

func askStream(name string) string {
	return `{"model":` + strconv.Quote(name) + `,"messages":[{"role":"user","content":"hello"}],"stream":true}`
}

// turn are the headers of a turn of a run.
func turn(run, id string) []string {
	return []string{"x-tangle-runid: " + run, "x-tangle-turnid: " + id}
}

// calls returns the records of a run.
func (b *bus) calls(run string) []agentbus.CallRecord {
	calls, err := b.store.Calls(b.t.Context(), agentbus.RunID(run))
	if err != nil {
		b.t.Fatal(err)
	}
	return calls
}

// await waits until the records of a run are as told.
func (b *bus) await(run string, as func([]agentbus.CallRecord) bool) []agentbus.CallRecord {
	b.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		calls := b.calls(run)
		if as(calls) {
			return calls
		}
		select {
		case <-tick.C:
		case <-late:
			b.t.Fatalf("the records of run %s did not come to be as they should: %+v", run, calls)
		}
	}
}

// one returns the only record of a run, once it is in the state.
func (b *bus) one(run string, state agentbus.CallState) agentbus.CallRecord {
	b.t.Helper()
	calls := b.await(run, func(calls []agentbus.CallRecord) bool { return len(calls) > 0 && calls[0].State == state })
	if len(calls) != 1 {
		b.t.Errorf("run %s has %d records, want one: %+v", run, len(calls), calls)
	}
	return calls[0]
}

// raw writes bytes to the gateway's socket and returns what comes back, read as
// an answer. request holds lines; they are sent with CRLF.
func (b *bus) raw(request string) answer {
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Error(err)
		return answer{err: err}
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		return answer{err: err}
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	for err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(in, nil)
	}
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, resp.Trailer, string(body), err}
}

// rawPost is a call as alice as it stands on the wire, with more header lines.
func rawPost(path, body string, lines ...string) string {
	head := append([]string{"POST " + path + " HTTP/1.1", "Host: bus", asAlice}, lines...)
	return strings.Join(head, "\r\n") + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// refused checks one of our own refusals: status and code, and that clients do
// not retry it (P12).
func refused(t *testing.T, what string, got answer, status int, code agentbus.Code) {
	t.Helper()
	if got.status != status || got.code() != code {
		t.Errorf("%s: %v, want %d %s", what, got, status, code)
		return
	}
	retry, wait := got.header.Get("X-Should-Retry"), got.header.Get("Retry-After")
	if code.Retryable() && (retry != "" || wait == "") {
		t.Errorf("%s: x-should-retry %q, Retry-After %q: it may be retried", what, retry, wait)
	}
	if !code.Retryable() && (retry != "false" || wait != "" || got.header.Get("Retry-After-Ms") != "") {
		t.Errorf("%s: x-should-retry %q, Retry-After %q: it must not be retried", what, retry, wait)
	}
}

// inProcess makes a call as a driver of the gateway's own process does.
func (b *bus) inProcess(ctx context.Context, body string, l agentbus.Lineage) answer {
	return b.inProcessAt(ctx, chatRoute, body, l)
}

func (b *bus) inProcessAt(ctx context.Context, route, body string, l agentbus.Lineage) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+route, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	l.SetHeaders(r.Header)
	resp, err := httpx.Memory(b.Gateway).RoundTrip(r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, resp.Trailer, string(got), err}
}

// inAWhile is when a write that does not get on is taken to be stuck.
func inAWhile() time.Time { return time.Now().Add(300 * time.Millisecond) }
