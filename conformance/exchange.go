package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
)

// An answer is what came back.
type answer struct {
	sent            string
	status          int
	header, trailer http.Header
	body            string
	err             error               // there is no answer, or it broke off
	redact          func(string) string // takes credentials out of what is told of it
}

// errNoAnswer says that there is not even the head of an answer.
var errNoAnswer = errors.New("no answer")

// problem returns the error of an error body.
func (a *answer) problem() gjson.Result { return gjson.Get(a.body, "error") }

// code returns the code of an error body.
func (a *answer) code() string { return a.problem().Get("code").Str }

// String says what came back, for a finding.
func (a *answer) String() string {
	if a.status == 0 {
		return fmt.Sprint(a.err)
	}
	s := strconv.Itoa(a.status) + " " + clip(a.redact(a.body), 240)
	if a.err != nil {
		s += " and then " + a.err.Error()
	}
	return s
}

// An exchange is a call on its way: its answer grows until it is over.
type exchange struct {
	p    *probe
	over chan struct{}

	mu      sync.Mutex // guards what follows
	changed chan struct{}
	got     answer
}

// send sends a call and returns its whole answer.
func (p *probe) send(c *call) *answer { return p.start(c).wait() }

// start sends a call. The probe waits for its end at the latest in close.
func (p *probe) start(c *call) *exchange {
	x := &exchange{p: p, over: make(chan struct{}), changed: make(chan struct{})}
	x.got = answer{sent: c.String(), header: http.Header{}, redact: p.redact}
	if p.requests++; p.requests > maxRequests {
		x.got.err = errors.New("the bound on requests is reached")
		close(x.over)
		return x
	}
	secrets := p.secrets // more may be made up meanwhile
	p.open.Go(func() {
		defer close(x.over)
		err := x.perform(p.ctx, c)
		x.change(func(a *answer) { a.err = err })
		p.look(&x.got, secrets)
	})
	return x
}

// look keeps that an answer told a credential (P19).
func (s *session) look(a *answer, secrets []agentbus.Credential) {
	text := fmt.Sprint(a.header, a.trailer) + a.body
	for _, c := range secrets {
		if c.Redact(text) != text {
			s.mu.Lock()
			s.leaks = append(s.leaks, a.sent)
			s.mu.Unlock()
			return
		}
	}
}

func (x *exchange) perform(ctx context.Context, c *call) error {
	conn, err := x.p.dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer conn.Close() //nolint:errcheck // everything was read, or will not be
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	written := make(chan struct{})
	go func() { // an endpoint may answer, and hang up, before it has read all
		defer close(written)
		_, _ = io.WriteString(conn, c.text(x.p.base.Host, strings.TrimSuffix(x.p.base.EscapedPath(), "/"))) // the answer tells
	}()
	defer func() { _ = conn.SetDeadline(time.Unix(1, 0)); <-written }()
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: c.method})
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(in, &http.Request{Method: c.method})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, told(ctx, err))
	}
	defer resp.Body.Close() //nolint:errcheck // as above
	x.change(func(a *answer) { a.status, a.header = resp.StatusCode, resp.Header })
	return x.read(ctx, resp)
}

// maxAnswer bounds what is read of one answer.
const maxAnswer = 1 << 20

func (x *exchange) read(ctx context.Context, resp *http.Response) error {
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		x.change(func(a *answer) { a.body += string(buf[:n]) })
		switch {
		case errors.Is(err, io.EOF):
			x.change(func(a *answer) { a.trailer = resp.Trailer })
			return nil
		case err != nil:
			return fmt.Errorf("the answer broke off: %w", told(ctx, err))
		case len(x.got.body) > maxAnswer:
			return errors.New("the answer does not end")
		}
	}
}

// told says that it was us who stopped waiting.
func told(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("nothing came before the timeout of the check")
	}
	return err
}

func (x *exchange) change(do func(*answer)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	do(&x.got)
	close(x.changed)
	x.changed = make(chan struct{})
}

// wait returns the whole answer.
func (x *exchange) wait() *answer {
	<-x.over
	return &x.got
}

// until waits until the answer holds text, and reports whether it came to.
func (x *exchange) until(text string) bool {
	for {
		x.mu.Lock()
		changed, has := x.changed, strings.Contains(x.got.body, text)
		x.mu.Unlock()
		if has {
			return true
		}
		select {
		case <-changed:
		case <-x.over:
			return strings.Contains(x.got.body, text)
		}
	}
}

func (s *session) dial(ctx context.Context) (net.Conn, error) {
	port := s.base.Port()
	if port == "" {
		port = s.base.Scheme
	}
	addr := net.JoinHostPort(s.base.Hostname(), port)
	if s.base.Scheme == "https" {
		d := tls.Dialer{Config: &tls.Config{ServerName: s.base.Hostname(), NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}}
		return d.DialContext(ctx, "tcp", addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}
