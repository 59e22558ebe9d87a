package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// ports finds out whether the bus can listen, or does already.
func (d *doctor) ports(ctx context.Context) {
	scheme := "http"
	if t := d.trusting(); t != nil {
		scheme = "https"
		d.client.Transport.(*http.Transport).TLSClientConfig = t //nolint:forcetypeassert,errcheck // Run has made it
	}
	if d.port(ctx, "listen", d.c.Listen, "set listen in the configuration (AGENTBUS_LISTEN)") {
		at := scheme + "://" + nearby(d.c.Listen)
		v, err := versionAt(ctx, d.get, at)
		_, foreign := errors.AsType[unbelieved](err)
		switch {
		case err == nil:
			d.bus = at
			d.find(checkPorts, "listen", levelOK, "agentbus "+v.Version+" serves on "+d.c.Listen, "")
		case foreign: // a bus that serves the one before it was renewed, as a rule
			d.find(checkPorts, "listen", levelFault, "who listens on "+d.c.Listen+" shows another certificate than "+d.c.TLS.CertFile+" has, or one that is not valid",
				"start the bus again: it reads the file when it starts; if it is no bus, stop it")
		default:
			d.find(checkPorts, "listen", levelFault, "something that is no bus listens on "+d.c.Listen+": "+err.Error(), "stop it, or set listen in the configuration (AGENTBUS_LISTEN)")
		}
	}
	if d.c.Admin.Listen == "" {
		d.find(checkPorts, "admin.listen", levelNote, "there is no admin listener: no metrics, no agentbus stop", "set admin.listen, such as 127.0.0.1:8081")
		return
	}
	const other = `set admin.listen in the configuration (AGENTBUS_ADMIN_LISTEN)`
	if d.port(ctx, "admin.listen", d.c.Admin.Listen, other) {
		if adminAt(ctx, d.get, adminURL(d.c)) {
			d.find(checkPorts, "admin.listen", levelOK, "the admin API of a bus is on "+d.c.Admin.Listen, "")
		} else {
			d.find(checkPorts, "admin.listen", levelFault, "something that is no bus listens on "+d.c.Admin.Listen, "stop it, or "+other)
		}
	}
}

// port reports whether somebody listens on an address already.
func (d *doctor) port(ctx context.Context, key, address, other string) (taken bool) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		_ = l.Close() // nobody connected
		d.find(checkPorts, key, levelOK, address+" is free", "")
	case errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048)): // the latter is Windows's
		return true
	default:
		d.find(checkPorts, key, levelFault, "cannot listen on "+address+": "+cause(err), other)
	}
	return false
}

const mostTold = 1 << 20 // bytes of an answer that the doctor reads

// get asks without any credential, and looks at the clock of who answers.
func (d *doctor) get(ctx context.Context, at string) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, nil, errors.New("it is no URL")
	}
	return d.send(r)
}

// unbelieved is why the certificate of who was called is not believed.
type unbelieved string

// Error returns it.
func (u unbelieved) Error() string { return string(u) }

func (d *doctor) send(r *http.Request) (*http.Response, []byte, error) {
	began := time.Now()
	resp, err := d.client.Do(r)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil, fmt.Errorf("it takes longer than %s", d.verb.Timeout)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return nil, nil, unbelieved(unreachable(err))
	}
	if err != nil {
		return nil, nil, errors.New(unreachable(err))
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	d.clockOf(r.URL.Host, resp, began)
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostTold))
	if err != nil {
		return nil, nil, errors.New("its answer broke off: " + cause(err))
	}
	return resp, body, nil
}

// version compares this program with the bus that runs, and asks that how it
// does.
func (d *doctor) version(ctx context.Context) {
	at := d.bus
	if d.verb.Server != "" {
		at = strings.TrimSuffix(d.verb.Server, "/")
		if u, err := url.Parse(at); err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			d.find(checkVersion, "", levelFault, "--server is not the URL of a bus", "write it as http://127.0.0.1:8080")
			return
		}
	}
	own := thisBuild()
	if at == "" {
		d.find(checkVersion, "", levelNote, own.String()+"; no bus runs to compare it with", "agentbus serve starts one; --server names one elsewhere")
		return
	}
	v, err := versionAt(ctx, d.get, at)
	switch {
	case err != nil:
		d.find(checkVersion, at, levelFault, "no bus answers: "+err.Error(), "start it with agentbus serve, or name its public surface with --server; its admin listener has another address")
		return
	case v.Protocol != own.Protocol:
		d.find(checkVersion, at, levelFault, "it speaks protocol "+v.Protocol+", this program protocol "+own.Protocol, "use the agentbus that the bus runs, version "+v.Version)
	case v.Version != own.Version:
		d.find(checkVersion, at, levelWarning, "the bus is agentbus "+v.Version+", this program "+own.Version, "start the bus again with this version, or use the agentbus that it runs")
	default:
		d.find(checkVersion, at, levelOK, "the bus and this program are agentbus "+own.Version, "")
	}
	d.ready(ctx, at)
}

// ready asks a bus whether it is, and what of its configuration is not in force.
func (d *doctor) ready(ctx context.Context, at string) {
	resp, body, err := d.get(ctx, at+"/readyz") //nolint:bodyclose // send has read and closed it
	var said struct {
		Degraded []string `json:"degraded"`
		Detail   string   `json:"detail"`
		Error    struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err == nil {
		_ = json.Unmarshal(body, &said) // what is not JSON says nothing
	}
	switch {
	case err != nil:
		d.find(checkVersion, at, levelFault, "GET /readyz: "+err.Error(), "see the log of the bus")
	case resp.StatusCode != http.StatusOK:
		d.find(checkVersion, at, levelFault, fmt.Sprintf("it is not ready: %s: %s%s", resp.Status, said.Detail, said.Error.Message), "see the log of the bus")
	}
	for _, why := range said.Degraded {
		d.find(checkVersion, at, levelWarning, "its configuration is not the file's: "+why, "mend what agentbus config check says; start the bus again where a key waits for that")
	}
}
