package agentbus

import (
	"crypto/rand"
	"encoding/hex"
)

// A SpanContext is a place in a trace: one span of it, as W3C Trace Context
// writes it in a traceparent. The zero SpanContext is no place.
type SpanContext struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte // FlagSampled and FlagRandom; others are not carried
}

// The flags of a SpanContext.
const (
	FlagSampled byte = 1 << iota // its spans are kept
	FlagRandom                   // its trace id is random (level 2)
)

// ParseTraceParent reads a traceparent. Of a version to come it reads what
// version 00 has. ok is false for one that is malformed, which is dropped and
// never refused (P2).
func ParseTraceParent(s string) (c SpanContext, ok bool) {
	if !validTraceParent(s) {
		return c, false
	}
	var flags [1]byte
	for _, part := range [...]struct {
		to   []byte
		from string
	}{{c.Trace[:], s[3:35]}, {c.Span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if _, err := hex.Decode(part.to, []byte(part.from)); err != nil {
			return SpanContext{}, false
		}
	}
	c.Flags = flags[0] & (FlagSampled | FlagRandom)
	return c, true
}

// NewTrace returns the first span of a trace of its own, not sampled. It reads
// the system's random source.
func NewTrace() SpanContext {
	c := SpanContext{Flags: FlagRandom}
	_, _ = rand.Read(c.Trace[:]) // never fails since Go 1.24
	return c.Child()
}

// Child returns a new span of c's trace, with its flags. It reads the system's
// random source.
func (c SpanContext) Child() SpanContext {
	_, _ = rand.Read(c.Span[:]) // never fails since Go 1.24
	c.Span[7] |= 1              // a span of zeros is none
	return c
}

// IsZero reports whether c is no place in a trace.
func (c SpanContext) IsZero() bool { return c.Trace == [16]byte{} }

// Sampled reports whether the spans of c's trace are kept.
func (c SpanContext) Sampled() bool { return c.Flags&FlagSampled != 0 }

// WithSampled returns c with FlagSampled as given.
func (c SpanContext) WithSampled(sampled bool) SpanContext {
	if c.Flags &^= FlagSampled; sampled {
		c.Flags |= FlagSampled
	}
	return c
}

// String returns c as a traceparent of version 00; "" for no place.
func (c SpanContext) String() string {
	if c.IsZero() {
		return ""
	}
	b := make([]byte, 0, 55)
	b = hex.AppendEncode(append(b, "00-"...), c.Trace[:])
	b = hex.AppendEncode(append(b, '-'), c.Span[:])
	return string(hex.AppendEncode(append(b, '-'), []byte{c.Flags}))
}
