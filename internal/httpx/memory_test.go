package httpx_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentbus/agentbus/internal/httpx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func roundTrip(ctx context.Context, t *testing.T, h http.HandlerFunc) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bus.internal/a%2Fb?q=1", strings.NewReader("ping"))
	if err != nil {
		t.Fatal(err)
	}
	return httpx.Memory(h).RoundTrip(r)
}

// failure is the error of a round trip that gives no response.
func failure(ctx context.Context, t *testing.T, h http.HandlerFunc) error {
	t.Helper()
	resp, err := roundTrip(ctx, t, h)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

type ctxKey struct{}

func TestMemoryServesARequest(t *testing.T) {
	t.Parallel()
	ctx := context.WithValue(t.Context(), ctxKey{}, "seen")
	resp, err := roundTrip(ctx, t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen, _ := r.Context().Value(ctxKey{}).(string)
		w.Header().Set("X-Seen", seen)
		w.Header().Set("X-Path", r.URL.EscapedPath()+" "+r.RequestURI+" "+r.Host+r.URL.Host)
		w.Header().Set("Content-Length", "4")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK) // too late
		w.Header().Set("X-Late", "1")
		_, _ = w.Write(body)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, resp.Body)
	body, err := io.ReadAll(resp.Body)
	if string(body) != "ping" || err != nil || resp.StatusCode != http.StatusTeapot || resp.ContentLength != 4 {
		t.Errorf("got %d %q %v, length %d", resp.StatusCode, body, err, resp.ContentLength)
	}
	want := http.Header{"X-Seen": {"seen"}, "X-Path": {"/a%2Fb /a%2Fb?q=1 bus.internal"}, "Content-Length": {"4"}}
	if diff := cmp.Diff(want, resp.Header); diff != "" {
		t.Errorf("header (-want +got)\n%s", diff)
	}
}

func TestMemoryStreamsAsItIsWritten(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	resp, err := roundTrip(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Cost")
		_ = http.NewResponseController(w).Flush() // sends the header
		<-more
		_, _ = w.Write([]byte("one"))
		<-more
		_, _ = w.Write([]byte("two"))
		w.Header().Set("X-Cost", "0.1")
		w.Header().Set(http.TrailerPrefix+"X-Other", "y")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, resp.Body)
	for _, want := range []string{"one", "two"} {
		more <- struct{}{}
		got := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	if diff := cmp.Diff(http.Header{"X-Cost": {"0.1"}, "X-Other": {"y"}}, resp.Trailer); diff != "" {
		t.Errorf("trailer (-want +got)\n%s", diff)
	}
}

func TestMemoryCloseStopsTheHandler(t *testing.T) {
	t.Parallel()
	ended := false
	resp, err := roundTrip(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		<-r.Context().Done()
		if _, err := w.Write([]byte("x")); err == nil {
			t.Error("a write after the caller has left succeeded")
		}
		ended = true
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if !ended { // Close waited, so this is no race
		t.Error("Close returned before the handler")
	}
}

func TestMemoryCancelled(t *testing.T) {
	t.Parallel()
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := failure(ctx, t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(left)
		<-r.Context().Done()
	})
	if !errors.Is(err, left) {
		t.Errorf("before the header: got %v", err)
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	release := make(chan struct{})
	resp, err := roundTrip(ctx, t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		<-release // ignores its context
	})
	if err != nil {
		t.Fatal(err)
	}
	cancel(left)
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, left) {
		t.Errorf("inside the body: got %v", err)
	}
	close(release)
	_ = resp.Body.Close()
}

func TestMemoryPanics(t *testing.T) {
	t.Parallel()
	if err := failure(t.Context(), t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("aborted before the header: got %v", err)
	}
	for _, c := range []struct {
		value any
		want  string
	}{{http.ErrAbortHandler, "unexpected EOF"}, {"boom", "handler panicked: boom"}} {
		resp, err := roundTrip(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("part"))
			panic(c.value)
		})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if string(body) != "part" || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %q, %v, want an error with %q", body, err, c.want)
		}
		_ = resp.Body.Close()
	}
}

func TestMemoryWithoutBody(t *testing.T) {
	t.Parallel()
	resp, err := roundTrip(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("got %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, resp.Body)
	if body, err := io.ReadAll(resp.Body); len(body) > 0 || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
	resp2, err := roundTrip(t.Context(), t, func(http.ResponseWriter, *http.Request) {})
	if err != nil || resp2.StatusCode != http.StatusOK {
		t.Fatalf("a handler that does nothing: %v, %v", resp2, err)
	}
	_ = resp2.Body.Close()
}
