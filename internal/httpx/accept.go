package httpx

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// Prefers reports whether a request names kind among what it accepts, and likes
// other no better.
func Prefers(h http.Header, kind, other string) bool {
	likes := map[string]float64{}
	for accepted := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		name, params, err := mime.ParseMediaType(accepted)
		if err != nil {
			continue
		}
		likes[name] = 1
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			likes[name] = q
		}
	}
	return likes[kind] > 0 && likes[kind] >= likes[other]
}
