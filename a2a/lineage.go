package a2a

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/rawjson"
)

// MetadataKey is the member of a message's metadata in which a lineage travels
// beside the headers: they do not survive queues and stores, metadata does. Its
// members have the names of the headers.
const MetadataKey = "agentbus"

// carried are the headers that travel in metadata: no credential, which would
// be stored with the message, and no trace context, which changes with every
// try.
var carried = [...]string{
	agentbus.HeaderRunID, agentbus.HeaderTurnID, agentbus.HeaderParentTurnID, agentbus.HeaderForwardedDepth,
	agentbus.HeaderSpeaker, agentbus.HeaderPath, agentbus.RootContextIDHeader, agentbus.ParentContextIDHeader,
}

func metadataNames() (keys []names) {
	for _, name := range carried {
		keys = append(keys, names{name})
	}
	return keys
}

// LineageMetadata returns what stands under MetadataKey for a lineage, as JSON
// with its members in alphabetical order: a retry has the same bytes.
func LineageMetadata(l agentbus.Lineage) []byte {
	out := make([]byte, 1, 384)
	out[0] = '{'
	for _, m := range [...]struct{ name, value string }{
		{agentbus.HeaderPath, l.Path},
		{agentbus.ParentContextIDHeader, l.ParentContext},
		{agentbus.RootContextIDHeader, l.RootContext},
		{agentbus.HeaderForwardedDepth, strconv.Itoa(l.Depth)},
		{agentbus.HeaderParentTurnID, string(l.Parent)},
		{agentbus.HeaderRunID, string(l.Run)},
		{agentbus.HeaderSpeaker, l.Speaker.Wire()},
		{agentbus.HeaderTurnID, string(l.Turn)},
	} {
		if m.value == "" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), m.name...), `":`...)
		out = rawjson.AppendText(out, m.value)
	}
	return append(out, '}')
}

// MergeLineage returns h with the lineage that the metadata of a request adds:
// what the headers do not say when they name no run or the same one, and the
// greater depth in any case, since depth only rises (P8). h itself is not
// changed. Metadata without a lineage, or none that is read, adds nothing.
func MergeLineage(h http.Header, c *Call, body []byte) http.Header {
	told := c.metadata(body)
	if !told.IsObject() {
		return h
	}
	text := func(name string) string {
		if v := told.Get(gjson.Escape(name)); v.Type == gjson.String {
			return v.Str
		}
		return ""
	}
	out := h.Clone()
	if d := text(agentbus.HeaderForwardedDepth); deeper(d, h.Get(agentbus.HeaderForwardedDepth)) {
		out.Set(agentbus.HeaderForwardedDepth, d)
	}
	run := h.Get(agentbus.HeaderRunID)
	if run != "" && run != text(agentbus.HeaderRunID) {
		return out
	}
	for _, name := range carried {
		if v := text(name); v != "" && out.Get(name) == "" {
			out.Set(name, v)
		}
	}
	return out
}

// deeper reports whether the depth in metadata is to be taken: one that is
// deeper than the header's, or that cannot be read, so that it is refused.
func deeper(metadata, header string) bool {
	if metadata == "" {
		return false
	}
	told, err := agentbus.ParseDepth(metadata)
	if err != nil {
		return true
	}
	known, err := agentbus.ParseDepth(header)
	return err == nil && told > known
}

// metadata returns the lineage in the metadata of the message, or of the
// parameters where there is no message.
func (c *Call) metadata(body []byte) gjson.Result {
	return gjson.GetBytes(body, gjsonPath(c.MetadataPath(MetadataKey)))
}

func gjsonPath(keys []string) string {
	escaped := make([]string, len(keys))
	for i, k := range keys {
		escaped[i] = gjson.Escape(k)
	}
	return strings.Join(escaped, ".")
}

// MetadataPath returns the keys under which key stands in the metadata of the
// request: in that of the message where there is one, else in that of the
// parameters. [Set] takes it.
func (c *Call) MetadataPath(key ...string) []string {
	path := make([]string, 0, 3+len(key))
	if c.Binding == JSONRPC {
		path = append(path, "params")
	}
	if c.HasMessage {
		path = append(path, cmp.Or(c.messageKey, "message"))
	}
	return append(append(path, "metadata"), key...)
}

// TakesMetadata reports whether the request has a place for metadata: only
// sends, streams and cancels do.
func (c *Call) TakesMetadata() bool {
	return c.Operation.Executes() && c.HasMessage || c.Operation == OpCancel
}
