package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/internal/sse"
)

// showRecording tells what a call was asked and answered, where that is recorded
// (U11): the headers of the protocol in any case, bodies where content may be
// shown.
func (a *API) showRecording(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	var rec *console.Recording
	if id, ok := callID(r); ok {
		var err error
		if rec, err = a.recording(r.Context(), id); err != nil {
			return err
		}
	}
	if rec == nil {
		return notFound("recording of such a call", "calls are recorded while recording.requests is on, and that is kept as long as retention.replies says; see GET /admin/v1/runs/RUN/calls for the ids of calls")
	}
	return write(w, http.StatusOK, rec)
}

// recording reads what a call was asked and answered, as it may be shown; nil:
// that is not recorded.
func (a *API) recording(ctx context.Context, call int64) (*console.Recording, error) {
	rec, found, err := a.cfg.Records.Recording(ctx, call)
	if err != nil || !found {
		return nil, err
	}
	return &console.Recording{
		Call: call, Attempt: rec.Attempt, At: rec.At, RecordedBody: *a.body(&rec.RecordedBody), Answer: a.body(rec.Answer),
		Shown: a.cfg.Content, Headers: headerLines(rec.In, rec.Out),
	}, nil
}

// body returns what may be shown of a body.
func (a *API) body(b *agentbus.RecordedBody) *console.RecordedBody {
	switch {
	case b == nil:
		return nil
	case !a.cfg.Content:
		return &console.RecordedBody{Size: b.Size}
	}
	return &console.RecordedBody{Size: b.Size, Body: b.Body, Cut: b.Cut}
}

// onPage returns as much of a recorded body as a page shows.
func onPage(call int64, b *console.RecordedBody) *console.ShownBody {
	if b == nil {
		return nil
	}
	shown := &console.ShownBody{RecordedBody: *b, Call: call}
	shown.Text, shown.More = clip(b.Body, maxSaid)
	return shown
}

// wordsOf returns the words that the events of a stream add up to, of the dialects
// that agents stream in; "": it is no such stream.
func wordsOf(stream string) string {
	var words strings.Builder
	for r := sse.NewReader(strings.NewReader(stream), len(stream)); ; {
		e, err := r.Next()
		if e.Data == nil && err != nil {
			return words.String()
		}
		event := gjson.ParseBytes(e.Data)
		if choice := event.Get("choices.0"); choice.Get("index").Int() == 0 {
			words.WriteString(choice.Get("delta.content").String())
		}
		if event.Get("type").Str == "response.output_text.delta" {
			words.WriteString(event.Get("delta").String())
		}
		if result := event.Get("result"); result.Exists() {
			event = result
		}
		for _, part := range event.Get("artifactUpdate.artifact.parts.#.text").Array() {
			words.WriteString(part.String())
		}
	}
}

// headerLines puts headers side by side as they came and as they went on; no out:
// they did not.
func headerLines(in, out http.Header) []console.Header {
	names := http.Header{}
	maps.Copy(names, in)
	maps.Copy(names, out)
	lines := make([]console.Header, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		came, went := strings.Join(in[name], ", "), strings.Join(out[name], ", ")
		lines = append(lines, console.Header{Name: strings.ToLower(name), In: came, Out: went, Changed: len(out) > 0 && came != went})
	}
	return lines
}
