package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

const (
	maxChunkLine = 4 << 10
	maxDigits    = 16       // of the length of a chunk: others keep that many
	maxExcess    = 16 << 10 // of framing: who sends more sends no data
)

// chunks is the framing of a chunked body.
type chunks struct {
	left     int64 // of the chunk
	inside   bool  // a chunk: CRLF follows it
	excess   int64 // bytes of framing beyond what data of this size needs
	lenient  bool  // of trailers, which agents end as they like
	trailers http.Header
}

// next reads up to the data of the next chunk, or past the trailers at the end,
// which is io.EOF. They have at most so many bytes.
func (k *chunks) next(in *input, from net.Conn, most int) error {
	if k.inside {
		line, err := in.line(from, false)
		if err != nil {
			return cut(err)
		}
		if k.inside = len(line) > 0; k.inside {
			return errors.New("a chunk of the body is longer than it tells")
		}
	}
	line, err := in.line(from, false)
	if err != nil {
		return cut(err)
	}
	digits, _, _ := bytes.Cut(bytes.TrimRight(line, " \t"), []byte(";"))
	size, err := strconv.ParseUint(string(digits), 16, 62)
	if err != nil || len(digits) > maxDigits {
		return errors.New("the length of a chunk of the body is no hexadecimal number of up to 16 digits")
	}
	k.left, k.inside = int64(size), true
	if k.excess = max(0, k.excess+int64(len(line))+4-16-2*k.left); k.excess > maxExcess {
		return errors.New("the body has more framing than data")
	}
	if size == 0 {
		return k.end(in, from, most)
	}
	return nil
}

// end reads the trailers.
func (k *chunks) end(in *input, from net.Conn, most int) error {
	for {
		line, err := in.line(from, k.lenient)
		switch {
		case err != nil:
			return cut(err)
		case len(line) == 0:
			return io.EOF
		}
		if most -= len(line); most < 0 {
			return errors.New("the trailers of the body are over the limit")
		}
		name, value, fault := splitField(string(line))
		if fault != nil {
			return errors.New("a trailer of the body is no header")
		}
		if k.trailers == nil {
			k.trailers = http.Header{}
		}
		k.trailers[name] = append(k.trailers[name], strings.Clone(value))
	}
}

// ready reports whether next does not wait for the length of another chunk.
func (k *chunks) ready(in *input) bool {
	rest := in.rest()
	if k.inside {
		rest = rest[min(2, len(rest)):]
	}
	return bytes.IndexByte(rest, '\n') >= 0
}

// cut is the error of a body that ends within its framing.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
