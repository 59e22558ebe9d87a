package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agentbus/agentbus/admin/console"
)

// showRecording tells what a call was asked, where that is recorded (U11): the
// headers of the protocol in any case, the body where content may be shown.
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

// recording reads what a call was asked, as it may be shown; nil: that is not
// recorded.
func (a *API) recording(ctx context.Context, call int64) (*console.Recording, error) {
	rec, found, err := a.cfg.Records.Recording(ctx, call)
	if err != nil || !found {
		return nil, err
	}
	shown := &console.Recording{
		Call: call, Attempt: rec.Attempt, At: rec.At, Size: rec.Size, Shown: a.cfg.Content, Headers: headerLines(rec.In, rec.Out),
	}
	if a.cfg.Content {
		shown.Body, shown.Cut = rec.Body, rec.Cut
	}
	return shown, nil
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
