package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/agentbus/agentbus/internal/httpx"
)

// envAdminURL names the admin listener for the verbs of operators.
const envAdminURL = "AGENTBUS_ADMIN_URL"

// A getter asks without any credential, and reads the answer and its body.
type getter func(ctx context.Context, at string) (*http.Response, []byte, error)

// A runningBus is what a bus says of itself to everybody.
type runningBus struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Protocol string `json:"protocol"`
}

// versionAt returns which bus has its public surface at base. No agent answers
// there: the bus does itself.
func versionAt(ctx context.Context, get getter, base string) (v runningBus, err error) {
	_, body, err := get(ctx, base+"/version") //nolint:bodyclose // a getter has read and closed it
	if err != nil {
		return v, err
	}
	if json.Unmarshal(body, &v) != nil || v.Name != "agentbus" {
		return v, errors.New("it does not answer GET /version as a bus does")
	}
	return v, nil
}

// adminAt reports whether the admin listener of a bus is at base: it refuses who
// shows no key, in words of its own. No agent answers there either.
func adminAt(ctx context.Context, get getter, base string) bool {
	resp, body, err := get(ctx, base+"/admin/v1/status") //nolint:bodyclose // a getter has read and closed it
	if err != nil {
		return false
	}
	_, told := problemIn(resp, body)
	return told
}

// problemIn returns what an admin listener says why it refuses; false: this is no
// refusal of one.
func problemIn(resp *http.Response, body []byte) (p httpx.Problem, told bool) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // none is another kind
	return p, kind == "application/problem+json" && json.Unmarshal(body, &p) == nil && p.Code != ""
}

// notPublic says that a verb for the public surface met an admin listener.
func notPublic() *failure {
	return &failure{exit: exitUsage, what: "this is the admin listener of a bus, which calls no agents", next: "name its public surface, the address that agentbus serve prints first, such as http://127.0.0.1:8080, with --server or AGENTBUS_URL"}
}

// getPlainly is a getter that waits for a few seconds, takes no proxy and follows
// nobody elsewhere.
func getPlainly(ctx context.Context, at string) (*http.Response, []byte, error) {
	const most, patience = 64 << 10, 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return resp, body, err
}
