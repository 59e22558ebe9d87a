package gateway

import (
	_ "embed"
	"net/http"

	"github.com/agentbus/agentbus/internal/httpx"
)

// document describes the public surface: OpenAPI 3.1, written by hand and held
// to the handlers by a test.
//
//go:embed openapi.json
var document []byte

func showDocument(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Request-Id", httpx.NewRequestID())
	_, _ = w.Write(document) // a caller that left is its own loss
}
