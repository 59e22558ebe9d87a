package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/agentbus/agentbus/internal/httpx"
)

// fetchTimeout bounds one request to an issuer, from the dial to its last byte.
const fetchTimeout = 5 * time.Second

// newClient returns a client that follows no redirect: what an issuer says is
// worth something because of where it was read, and a redirect would carry what
// is asked about to another host (P23).
func newClient(transport http.RoundTripper, timeout time.Duration) *http.Client {
	if transport == nil {
		transport = &http.Transport{DisableKeepAlives: true, TLSHandshakeTimeout: fetchTimeout} // no proxy of the environment
	}
	return &http.Client{
		Transport: transport, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// checkURL says what is wrong with a URL that should be absolute and over https,
// or over http to this machine.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return errors.New("this is not an absolute URL")
	case u.Scheme != "https" && (u.Scheme != "http" || !httpx.Loopback(u.Hostname())):
		return errors.New("the URL is neither https nor on this machine")
	case u.User != nil || u.Fragment != "":
		return errors.New("the URL holds a user or a fragment")
	}
	return nil
}

// getJSON reads the JSON at an address, up to most bytes of it.
func getJSON(ctx context.Context, client *http.Client, at string, most int64, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	return doJSON(client, r, most, into)
}

// doJSON sends r and reads the JSON that answers it, up to most bytes of it.
func doJSON(client *http.Client, r *http.Request, most int64, into any) error {
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answered %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("its answer was cut off: %w", err)
	case int64(len(body)) > most:
		return fmt.Errorf("its answer is over %d bytes", most)
	case json.Unmarshal(body, into) != nil: // the cause could repeat what it said
		return errors.New("its answer is not the JSON that it should be")
	}
	return nil
}
