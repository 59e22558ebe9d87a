package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/execagent"
	"github.com/agentbus/agentbus/server/config"
)

// operating are the flags of verbs that act on a running bus.
type operating struct {
	Server string `placeholder:"URL" help:"Admin listener of the bus, such as http://127.0.0.1:8081; else AGENTBUS_ADMIN_URL, else AGENTBUS_URL, else that of the configuration. AGENTBUS_TOKEN is the key of an admin."`
}

// named returns the URL that the command line or the environment names; "" when
// neither does. AGENTBUS_URL is for who names one listener only: where it is the
// public one, it is told apart when it has answered.
func (o operating) named(a *app) string {
	named, _ := a.env(envAdminURL)
	shared, _ := a.env(execagent.EnvURL)
	return cmp.Or(o.Server, named, shared)
}

const (
	operatorTimeout = 30 * time.Second
	maxAnswer       = 64 << 20 // bytes
)

// An operator speaks to the admin listener of a running bus, as an admin.
type operator struct {
	url           string // without a slash at its end
	authorization agentbus.Credential
	http          *http.Client
}

// operator returns the operator of the bus that o means.
func (a *app) operator(o operating) (*operator, error) {
	op := &operator{url: strings.TrimSuffix(o.named(a), "/"), authorization: a.token(), http: &http.Client{
		Timeout: operatorTimeout, Transport: &http.Transport{DisableKeepAlives: true}, // no proxy from the environment
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would get the key
	}}
	if op.url == "" {
		c, err := a.load()
		if err != nil {
			return nil, err
		}
		if op.url = adminURL(c); op.url == "" {
			return nil, &failure{exit: exitUsage, what: "this configuration has no admin listener", next: "set admin.listen and start the bus again, or name that of another bus with --server or " + envAdminURL}
		}
		if op.authorization.IsZero() && !c.Admin.Token.IsZero() {
			op.authorization = bearer(c.Admin.Token)
		}
	}
	u, err := url.Parse(op.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, &failure{exit: exitUsage, what: "this is not the URL of an admin listener", next: "write it as http://127.0.0.1:8081"}
	}
	if op.authorization.IsZero() {
		return nil, &failure{exit: exitUsage, what: "there is no key to operate the bus with", next: "set AGENTBUS_TOKEN to the key of an admin; agentbus keys create NAME --role admin makes one"}
	}
	return op, nil
}

// adminURL returns where the admin listener of a configuration is reached from
// this machine; "" when there is none.
func adminURL(c *config.Config) string {
	if c.Admin.Listen == "" {
		return ""
	}
	return "http://" + nearby(c.Admin.Listen)
}

// nearby is where a listener is reached from this machine.
func nearby(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// do sends a request for path, which is below /admin/v1, and reads its answer
// into out.
func (o *operator) do(ctx context.Context, method, path string, out any) error {
	return o.send(ctx, method, path, nil, out)
}

// send is do with a body of JSON, unless it is nil.
func (o *operator) send(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, o.url+"/admin/v1"+path, &body)
	if err != nil {
		return err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", o.authorization.Reveal()) //nolint:forbidigo // a request is written
	r.Header.Set("Accept", "application/json")
	resp, err := o.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &failure{exit: exitFailed, what: "no bus answers at " + o.url, why: unreachable(err), next: "start it with agentbus serve, or name its admin listener with --server or " + envAdminURL}
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &failure{exit: exitFailed, what: "the answer of " + o.url + " broke off", why: cause(err), next: "try again"}
	}
	return o.read(ctx, resp, answer, out)
}

// read reads an answer, or the problem that it tells.
func (o *operator) read(ctx context.Context, resp *http.Response, body []byte, out any) error {
	if p, told := problemIn(resp, body); told {
		e := &agentbus.Error{Code: p.Code, Message: harmless(p.Detail), Explain: p.Explain}
		if p.Code == agentbus.CodeUnauthenticated || p.Code == agentbus.CodeForbidden {
			e.Explain = &agentbus.Explain{Next: "set AGENTBUS_TOKEN to the key of an admin; agentbus keys create NAME --role admin makes one"}
		}
		return e
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // none is another kind
	if kind == "application/json" && resp.StatusCode/100 == 2 && json.NewDecoder(bytes.NewReader(body)).Decode(out) == nil {
		return nil
	}
	const next = "name its admin listener, the address that agentbus serve prints for its admin API, with --server or " + envAdminURL
	if _, err := versionAt(ctx, getPlainly, o.url); err == nil {
		return &failure{exit: exitUsage, what: o.url + " is the public surface of a bus, not its admin listener", next: next}
	}
	return &failure{exit: exitFailed, what: "what answers at " + o.url + " is not the admin listener of a bus", why: "it said " + resp.Status, next: next}
}

// unreachable returns why nobody answered, without the URL that the message
// names already.
func unreachable(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	e, ok := errors.AsType[tls.RecordHeaderError](err)
	if ok && string(e.RecordHeader[:]) == "HTTP/" || errors.Is(err, http.ErrSchemeMismatch) {
		return "it answers in plain HTTP; its URL begins with http://"
	}
	return cause(err)
}
