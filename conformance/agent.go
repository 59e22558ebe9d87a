package conformance

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

// prompt stands in every message, before the nonce of the call and what the
// agent is to do.
const prompt = "agentbus-conformance "

var prompted = regexp.MustCompile(prompt + `([0-9a-f]{16}) ([a-z]+)(?::([0-9]{3}))?`)

// A recorder is the agent behind the endpoint: an OpenAI-compatible server that
// keeps what arrives and does what the message of each call says.
type recorder struct {
	addr   string
	server *http.Server
	over   chan struct{} // closed when nobody waits for an answer any more
	served chan struct{} // closed when nothing listens any more

	mu    sync.Mutex // guards calls and what is in them
	calls map[string]*expected
}

// An expected call is one that a check has announced.
type expected struct {
	arrivals []*arrival
	changed  chan struct{} // closed and renewed at each arrival
	release  chan struct{} // closed when held answers may go on
	freed    bool
}

// An arrival is a request as it came to the agent, and what the agent said.
type arrival struct {
	n      int // 1 for the first with this nonce
	header http.Header
	body   string
	told   string // the body of the answer, written before it is sent
	trap   bool   // it came to where a redirect led
}

// serveAgent serves the agent on l until close.
func serveAgent(l net.Listener) *recorder {
	r := &recorder{addr: l.Addr().String(), over: make(chan struct{}), served: make(chan struct{}), calls: map[string]*expected{}}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(l) // the checks say when it fails
	}()
	return r
}

func (r *recorder) close() {
	close(r.over)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if r.server.Shutdown(ctx) != nil {
		_ = r.server.Close() // what is left was not asked for by a check
	}
	<-r.served
}

// expect announces a call. Others are not kept.
func (r *recorder) expect(nonce string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[nonce] = &expected{changed: make(chan struct{}), release: make(chan struct{})}
}

// count returns how often the call arrived.
func (r *recorder) count(nonce string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.calls[nonce]; e != nil {
		return len(e.arrivals)
	}
	return 0
}

// first returns the first arrival of the call, which must have come.
func (r *recorder) first(nonce string) *arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := *r.calls[nonce].arrivals[0]
	return &a
}

// release lets the answers to the call go on that are held.
func (r *recorder) release(nonce string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.calls[nonce]; !e.freed {
		e.freed = true
		close(e.release)
	}
}

// wait waits until the call has arrived n times, and reports whether it has
// before ctx ended.
func (r *recorder) wait(ctx context.Context, nonce string, n int) bool {
	for {
		r.mu.Lock()
		changed, has := r.calls[nonce].changed, len(r.calls[nonce].arrivals) >= n
		r.mu.Unlock()
		if has {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

const mostArrivals = 16 // of one call; who sends more of it is not listened to

// arrive keeps a request. It returns nil for one that no check has announced.
func (r *recorder) arrive(nonce string, a *arrival) *expected {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.calls[nonce]
	if e == nil || len(e.arrivals) >= mostArrivals {
		return nil
	}
	e.arrivals = append(e.arrivals, a)
	a.n = len(e.arrivals)
	close(e.changed)
	e.changed = make(chan struct{})
	return e
}

// ServeHTTP answers as the message of the call says.
func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, mostBody+1<<20))
	if err != nil {
		return
	}
	if q.Method == http.MethodGet && q.URL.Path == "/v1/models" {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"conformance","object":"model","created":0,"owned_by":"agentbus"}]}`)
		return
	}
	a := &arrival{header: q.Header, body: string(body)}
	m := prompted.FindStringSubmatch(a.body)
	if nonce, ok := strings.CutPrefix(q.URL.Path, "/trap/"); ok {
		a.trap = true
		m = []string{"", nonce, "text", ""}
	}
	if m == nil {
		answerError(w, http.StatusBadRequest, errorBody("this agent takes calls of agentbus conformance only"))
		return
	}
	e := r.arrive(m[1], a)
	if e == nil {
		answerError(w, http.StatusNotFound, errorBody("no check has announced this call"))
		return
	}
	b := &behaviour{recorder: r, w: w, q: q, of: e, in: a, nonce: m[1], stream: strings.Contains(a.body, `"stream":true`)}
	b.perform(m[2], m[3])
}

func errorBody(message string) string {
	return fmt.Sprintf(`{"error":{"message":%q,"type":"agent_error","param":null,"code":"told_by_agent"}}`, message)
}

func answerError(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
