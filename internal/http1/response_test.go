package http1_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus/internal/http1"
)

// TestPipelined: no byte is lost or read twice, whoever reads what.
func TestPipelined(t *testing.T) {
	t.Parallel()
	p := newPipes()
	start(t, p, echo)
	sizes := []int{1, 5, 90, 4096, 4095, 40, 9000}
	var raw strings.Builder
	for i := range 60 {
		body := strings.Repeat("x", sizes[i%len(sizes)])
		switch i % 3 {
		case 0:
			_, _ = fmt.Fprintf(&raw, "POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
		case 1:
			_, _ = fmt.Fprintf(&raw, "POST /%d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", i, len(body), body)
		default:
			_, _ = fmt.Fprintf(&raw, "\r\nPOST /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
		}
	}
	for _, piece := range []int{13, 1 << 20} {
		l := p.dial(t)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for s := raw.String(); s != ""; {
				n := min(piece, len(s))
				if _, err := io.WriteString(l, s[:n]); err != nil {
					return
				}
				s = s[n:]
			}
		}()
		for i := range 60 {
			want := fmt.Sprintf("POST /%d %q <nil>", i, strings.Repeat("x", sizes[i%len(sizes)]))
			if i%3 == 2 {
				want = fmt.Sprintf("POST /%d \"\" <nil>", i)
			}
			if resp, got := l.hear(t, http.MethodPost); got != want || resp.StatusCode != http.StatusOK {
				t.Fatalf("pieces of %d, request %d: %s %s", piece, i, resp.Status, got)
			}
		}
		<-sent
	}
}

// G3: who is refused in the middle of a large body reads why.
func TestRefusedAmidItsBody(t *testing.T) {
	t.Parallel()
	addr := serve(t, gives(http.StatusRequestEntityTooLarge, "no"))
	for _, framing := range []string{"Content-Length: 4000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3d0900\r\n"} {
		l := dial(t, addr)
		l.say(t, "POST /a HTTP/1.1\r\nHost: x\r\n"+framing)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.WriteString(l, strings.Repeat("x", 4000000))
		}()
		if resp, got := l.hear(t, http.MethodPost); got != "no" || !resp.Close {
			t.Error(resp.Status, got)
		}
		l.closed(t)
		_ = l.Close()
		<-sent
	}
}

// TestWriteDeadline: it ends an answer that nobody takes, and the request with it,
// and is not that of the next.
func TestWriteDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		stalled := make(chan error, 1)
		start(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/b" {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
			}
			echo(w, r)
			if r.URL.Path == "/stall" {
				_, err := io.WriteString(w, strings.Repeat("x", 9000))
				stalled <- errors.Join(err, r.Context().Err())
			}
		})
		l := p.dial(t)
		_ = l.SetDeadline(time.Time{})
		for range 2 {
			if got := l.get(t, "/a"); got != `GET /a "" <nil>` {
				t.Error(got)
			}
			<-time.After(2 * time.Second)
			l.say(t, "POST /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
			resp, err := http.ReadResponse(l.r, nil)
			if err != nil || resp.StatusCode != http.StatusContinue {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
			l.say(t, "abc")
			if _, got := l.hear(t, http.MethodPost); got != `POST /b "abc" <nil>` {
				t.Error(got)
			}
		}
		l.say(t, "GET /stall HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := <-stalled; !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "context canceled") {
			t.Error(err)
		}
		l.closed(t)
		_ = l.Close() // within the bubble
	})
}

// G4: a handler sees the certificate of its caller, and that it leaves.
func TestTLS(t *testing.T) {
	t.Parallel()
	borrowed := httptest.NewTLSServer(nil)
	certificates := borrowed.TLS.Certificates
	borrowed.Close()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	start(t, tls.NewListener(inner, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates, ClientAuth: tls.RequireAnyClientCert}), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			flush(w)
			<-r.Context().Done()
			close(left)
			return
		}
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%d %q %v", len(r.TLS.PeerCertificates), body, err)
	}, func(s *http1.Server) { s.ReadHeader = patience })
	encrypted := func(c *tls.Config) *line {
		conn, err := tls.Dial("tcp", inner.Addr().String(), c)
		if err != nil {
			t.Fatal(err)
		}
		return newLine(t, conn)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates, InsecureSkipVerify: true}
	l := encrypted(c)
	for range 3 {
		l.say(t, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", "d", "ef")
		for _, want := range []string{`1 "abc" <nil>`, `1 "def" <nil>`} {
			if _, got := l.hear(t, http.MethodPost); got != want {
				t.Error(got)
			}
		}
	}
	l.say(t, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := l.r.ReadString('\n'); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("nobody was told that the caller has left")
	}
	nobody := c.Clone()
	nobody.Certificates = nil
	l = encrypted(nobody)
	if _, err := io.ReadAll(l.r); err == nil {
		t.Error("a caller without a certificate is served")
	}
	for _, size := range []int{1, 100 << 10} { // some of the latter is not read when the answer is sent
		plain := dial(t, inner.Addr().String())
		plain.say(t, "GET /a HTTP/1.1\r\nHost: x\r\nA: "+strings.Repeat("x", size)+"\r\n\r\n")
		if resp, got := plain.hear(t, http.MethodGet); resp.StatusCode != http.StatusBadRequest || !strings.Contains(got, "TLS is spoken here") {
			t.Error(resp.Status, got)
		}
		plain.closed(t)
	}
	noise := dial(t, inner.Addr().String())
	noise.say(t, "noise of any kind\r\n\r\n")
	if b, _ := io.ReadAll(noise.r); strings.Contains(string(b), "HTTP") {
		t.Errorf("%q", b)
	}
}

// TestBadStatus: a status that is none is a fault of the handler.
func TestBadStatus(t *testing.T) {
	t.Parallel()
	l := dial(t, serve(t, gives(99, "no")))
	l.say(t, getA)
	if resp, got := l.hear(t, http.MethodGet); resp.StatusCode != http.StatusInternalServerError || got != "no" {
		t.Error(resp.Status, got)
	}
}
