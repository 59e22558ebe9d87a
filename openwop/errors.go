package openwop

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A refusal is an error in the words of the wire (E3).
type refusal struct {
	status  int
	code    string
	message string
	details map[string]any
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, "validation_error", format, args...)
}

func notFound(code, format string, args ...any) *refusal {
	return refuse(http.StatusNotFound, code, format, args...)
}

// errNoRun answers for a run that is not there, and for one of another principal:
// nobody learns which (E2).
var errNoRun = notFound("run_not_found", "there is no such run")

// writeError answers with err. Its body has error, message and details, and no
// other member (E3).
func writeError(w http.ResponseWriter, err error) {
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		e := agentbus.AsError(err)
		r = &refusal{status: e.Code.Status(), code: string(e.Code), message: e.Message}
		if e.Code == agentbus.CodeInvalidRequest {
			r.code = "validation_error"
		}
		if e.Explain != nil && len(e.Explain.Supported) > 0 {
			r.details = map[string]any{"supported": e.Explain.Supported}
		}
		if e.Code.Retryable() {
			w.Header().Set("Retry-After", strconv.Itoa(int(httpx.DefaultRetryAfter.Seconds())))
		}
	}
	if w.Header().Get("Retry-After") == "" { // P12: a retry changes nothing
		w.Header().Set("X-Should-Retry", "false")
	} else {
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(httpx.DefaultRetryAfter.Milliseconds(), 10))
	}
	details := map[string]any{"correlationId": w.Header().Get("X-Request-Id")}
	maps.Copy(details, r.details)
	body, _ := json.Marshal(map[string]any{"error": r.code, "message": r.message, "details": details}) // strings
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(r.status)
	_, _ = w.Write(body)
}

// answer writes v.
func answer(w http.ResponseWriter, status int, v any) error {
	body, err := oneLine(v)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec,nolintlint // it is JSON, and says so; a caller that has left cannot be told
	return nil
}
