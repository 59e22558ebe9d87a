package httpx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Memory returns a transport that answers requests by calling h, without a
// network: for calls from one part of the bus to another, which must pass the
// same handler as any other call.
//
// Each request runs in a goroutine that whoever holds the response body waits
// for: Close cancels the request's context and returns when the handler has;
// so does a RoundTrip whose request ends before the handler has answered. A
// reader of the body gets the context's error as soon as it ends. The body is read as the handler writes it, without a buffer between, so Flush
// sends the header and has nothing else to do. The handler sees the values of
// the request's context. Trailers are carried. A handler that panics, with
// http.ErrAbortHandler or anything else, ends the response with a read error.
func Memory(h http.Handler) http.RoundTripper { return memory{h} }

type memory struct{ handler http.Handler }

// RoundTrip serves r and returns once the handler has written a header.
func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	pr, pw := io.Pipe()
	x := &exchange{
		header: http.Header{}, pipe: pw, noBody: r.Method == http.MethodHead,
		answered: make(chan struct{}), finished: make(chan struct{}),
	}
	go x.serve(ctx, m.handler, inbound(ctx, r)) // ends with the handler; body.Close and the branches below wait for it
	stop := context.AfterFunc(ctx, func() { _ = pw.CloseWithError(context.Cause(ctx)) })
	body := &memoryBody{PipeReader: pr, cancel: func() { stop(); cancel() }, finished: x.finished}
	select {
	case <-x.answered:
	case <-ctx.Done():
		_ = body.Close()
		return nil, context.Cause(ctx)
	}
	if x.response == nil {
		_ = body.Close()
		return nil, x.err
	}
	x.response.Body, x.response.Request = body, r
	return x.response, nil
}

// inbound returns r as a server sees it.
func inbound(ctx context.Context, r *http.Request) *http.Request {
	in := r.Clone(ctx)
	in.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	in.RequestURI = r.URL.RequestURI()
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RemoteAddr = "127.0.0.1:0" // it is this process
	in.Response, in.GetBody = nil, nil
	return in
}

// memoryBody is the body of a response from memory.
type memoryBody struct {
	*io.PipeReader
	cancel   context.CancelFunc
	finished <-chan struct{}
}

// Close cancels the request and waits for its handler.
func (b *memoryBody) Close() error {
	b.cancel()
	_ = b.PipeReader.Close()
	<-b.finished
	return nil
}

// exchange is one request: the handler's ResponseWriter.
type exchange struct {
	header   http.Header
	pipe     *io.PipeWriter
	noBody   bool
	answered chan struct{} // closed when response or err is set
	finished chan struct{} // closed when the handler has returned
	once     sync.Once     // closes answered
	response *http.Response
	err      error
}

// serve calls the handler and ends the response as it returns.
func (x *exchange) serve(ctx context.Context, h http.Handler, r *http.Request) {
	defer close(x.finished)
	defer func() {
		_ = r.Body.Close() // a transport closes what it was given
		switch p := recover(); {
		case p == http.ErrAbortHandler: //nolint:errorlint // net/http compares it like this
			x.fail(io.ErrUnexpectedEOF)
		case p != nil:
			x.fail(fmt.Errorf("handler panicked: %v\n%s", p, debug.Stack()))
		default:
			x.WriteHeader(http.StatusOK) // unless it has been
			x.trailers()
			_ = x.pipe.Close()
		}
	}()
	h.ServeHTTP(x, r.WithContext(ctx))
}

// fail ends the response with an error, or the round trip when there is no
// response yet.
func (x *exchange) fail(err error) {
	x.once.Do(func() {
		x.err = err
		close(x.answered)
	})
	_ = x.pipe.CloseWithError(err)
}

// Header returns the header to be sent; trailers are set in it later.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader sends the header. Only the first call counts; informational
// answers are left out.
func (x *exchange) WriteHeader(status int) {
	if status < http.StatusOK {
		return
	}
	x.once.Do(func() {
		x.noBody = x.noBody || status == http.StatusNoContent || status == http.StatusNotModified
		x.response = &http.Response{
			Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: x.header.Clone(), ContentLength: -1,
		}
		if n, err := strconv.ParseInt(x.header.Get("Content-Length"), 10, 64); err == nil {
			x.response.ContentLength = n
		}
		for _, list := range x.header["Trailer"] {
			for name := range strings.SplitSeq(list, ",") {
				if x.response.Trailer == nil {
					x.response.Trailer = http.Header{}
				}
				x.response.Trailer[http.CanonicalHeaderKey(strings.TrimSpace(name))] = nil
			}
		}
		x.response.Header.Del("Trailer")
		close(x.answered)
	})
}

// Write hands p to the reader of the body and returns when it has been read.
func (x *exchange) Write(p []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	if x.noBody {
		return 0, http.ErrBodyNotAllowed
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := x.pipe.Write(p)
	if err != nil {
		return n, errors.Join(errLeft, err)
	}
	return n, nil
}

var errLeft = errors.New("the caller has left")

// Flush sends the header.
func (x *exchange) Flush() { x.WriteHeader(http.StatusOK) }

// trailers completes the response before its body ends.
func (x *exchange) trailers() {
	trailer := http.Header{}
	for name := range x.response.Trailer {
		if v := x.header[name]; len(v) > 0 {
			trailer[name] = v
		}
	}
	for name, v := range x.header {
		if bare, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailer[http.CanonicalHeaderKey(bare)] = v
		}
	}
	if len(trailer) == 0 {
		return
	}
	if x.response.Trailer == nil {
		x.response.Trailer = http.Header{}
	}
	maps.Copy(x.response.Trailer, trailer)
}
