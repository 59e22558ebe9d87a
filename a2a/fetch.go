package a2a

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

const (
	fetchTimeout = 5 * time.Second
	maxDocument  = 256 << 10 // bytes of what is fetched
	maxHead      = 64 << 10  // bytes of the head of an answer
)

// Fetch reads the document at u: at most 256 KiB, within 5 seconds, over one
// redirect at most (C33). accept is what it may be; only JSON is taken. It fails
// with CodeForbidden where d does not go, with CodeAgentNotFound where nothing
// is (404 and 410), and with CodeAgentUnavailable for everything else. No error
// repeats anything that was read.
func (d *Dialer) Fetch(ctx context.Context, u *url.URL, accept string) ([]byte, error) {
	body, _, err := d.fetch(ctx, u, accept)
	return body, err
}

// fetch is Fetch; it tells where the document stood in the end, too.
func (d *Dialer) fetch(ctx context.Context, u *url.URL, accept string) (body []byte, at *url.URL, err error) {
	if err := d.Check(u); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, unreadable(u, "it cannot be asked for", err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("User-Agent", "agentbus")
	resp, err := d.client.Do(r)
	if err != nil {
		if refused, ok := errors.AsType[*agentbus.Error](err); ok {
			return nil, nil, refused
		}
		return nil, nil, unreadable(u, "it cannot be reached", err)
	}
	body, err = document(resp)
	if e := resp.Body.Close(); err == nil && e != nil {
		err = e
	}
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone:
		return nil, nil, &agentbus.Error{Code: agentbus.CodeAgentNotFound, Message: "there is nothing at " + place(u), Explain: &agentbus.Explain{Rule: "C35", Observed: resp.StatusCode}}
	case resp.StatusCode != http.StatusOK:
		return nil, nil, unreadable(u, "it answers "+strconv.Itoa(resp.StatusCode), nil)
	case err != nil:
		return nil, nil, unreadable(u, err.Error(), nil)
	}
	return body, resp.Request.URL, nil
}

// document reads the body of an answer within its bounds.
func document(resp *http.Response) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, errors.New("it is not JSON by its Content-Type")
	}
	if resp.ContentLength > maxDocument {
		return nil, errTooLong
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, errors.New("it ends before its end, or not in time")
	case len(body) > maxDocument:
		return nil, errTooLong
	}
	return body, nil
}

var errTooLong = errors.New("it has more than 256 KiB")

func unreadable(u *url.URL, why string, err error) error {
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the document at " + place(u) + " cannot be read: " + why, Err: err,
		Explain: &agentbus.Explain{Rule: "C33"},
	}
}

// place is the host of u, as errors may name it: a path or a query may hold the
// name of an agent, which a relay would take for a mention.
func place(u *url.URL) string { return u.Host }
