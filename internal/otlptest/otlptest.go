// Package otlptest is a collector of spans that takes OTLP over HTTP, for tests:
// what it was sent is read with the protobuf module of the protocol itself.
package otlptest

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Collector takes spans, and keeps the bytes they came as. It is safe for
// concurrent use.
type Collector struct {
	*httptest.Server

	mu    sync.Mutex
	raw   bytes.Buffer
	spans []*tracepb.Span
}

// New returns a collector that listens on the loopback until the test ends.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what breaks off cannot be read below
		var in collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &in); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		_, _ = c.raw.Write(body) // into memory
		for _, rs := range in.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// Spans returns what has come so far.
func (c *Collector) Spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*tracepb.Span{}, c.spans...)
}

// Raw returns the bytes that came.
func (c *Collector) Raw() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.raw.Bytes())
}

// Chain returns the names of the spans from the one of a hexadecimal id up to
// the id of who has none here.
func (c *Collector) Chain(id string) (names []string) {
	for _, s := range c.Spans() {
		if hex.EncodeToString(s.GetSpanId()) == id {
			return append([]string{s.GetName()}, c.Chain(hex.EncodeToString(s.GetParentSpanId()))...)
		}
	}
	return []string{id}
}
