package httpx

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
)

// AgentURL reads the URL of an agent that is reached over HTTP, and tells all that
// is wrong with it and with the headers that the agent is to be sent.
func AgentURL(text, example string, headers http.Header) (u *url.URL, faults []error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		faults = append(faults, errors.New("url: is not a URL"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		faults = append(faults, errors.New("url: must be http:// or https:// with a host, such as "+example))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		faults = append(faults, errors.New("url: must not hold a user, a query or a fragment; a credential goes into the key"))
	}
	for name := range headers {
		if agentbus.IsProtocolHeader(name) || http.CanonicalHeaderKey(name) == "Authorization" {
			faults = append(faults, fmt.Errorf("header: %s is written by the bus; a credential goes into the key", strings.ToLower(name)))
		}
	}
	return u, faults
}
