package a2a

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
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

// DialerConfig configures [NewDialer].
type DialerConfig struct {
	// AllowHosts are hosts that may be reached at any address, and over plain HTTP
	// too: "bus.internal" at any port, "bus.internal:8080" at that one. An entry
	// with a port says besides where the WebFinger of that domain is asked,
	// "http://bus.internal:8080" that it is asked there over plain HTTP.
	AllowHosts []string
	// Lookup resolves the name of a host; nil: the system does, and names below
	// localhost are this machine.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Connect connects to an address of the network; nil: TCP. Tests bring their
	// own.
	Connect func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// RootCAs are who vouches for hosts; nil: those of the system.
	RootCAs *x509.CertPool
}

// A Dialer reaches URLs that strangers name, and nothing else that this machine
// can reach (C33): https on port 443, at public addresses. A name is resolved
// once, and the connection goes to the address that was looked at. It sends no
// credential of its own, keeps no connection and asks no proxy. It is safe for
// concurrent use.
type Dialer struct {
	cfg     DialerConfig
	allowed map[string]bool    // hosts, and hosts with a port
	bases   map[string]url.URL // of domains that are not asked at https and port 443
	client  *http.Client
}

// NewDialer returns a Dialer. It fails for a host in AllowHosts that is none.
func NewDialer(c DialerConfig) (*Dialer, error) {
	d := &Dialer{cfg: c, allowed: map[string]bool{}, bases: map[string]url.URL{}}
	for _, entry := range c.AllowHosts {
		bare, plain := strings.CutPrefix(entry, "http://")
		host, port, ok := splitHost(bare)
		if !ok {
			return nil, fmt.Errorf("a2a: %q is neither host nor host:port", entry)
		}
		d.allowed[allowKey(host, port)] = true
		switch {
		case plain:
			d.bases[strings.ToLower(host)] = url.URL{Scheme: "http", Host: bare}
		case port != "":
			d.bases[strings.ToLower(host)] = url.URL{Scheme: "https", Host: bare}
		}
	}
	if c.Lookup == nil {
		d.cfg.Lookup = lookup
	}
	if c.Connect == nil {
		d.cfg.Connect = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{Timeout: fetchTimeout}).DialContext(ctx, "tcp", to.String())
		}
	}
	d.client = &http.Client{Transport: d.Transport(), CheckRedirect: d.redirect}
	return d, nil
}

// splitHost reads host or host:port. A port that is missing is "".
func splitHost(entry string) (host, port string, ok bool) {
	u, err := url.Parse("//" + entry)
	if err != nil || u.Host != entry || u.Hostname() == "" || strings.HasSuffix(entry, ":") || strings.Contains(u.Hostname(), ":") && entry[0] != '[' {
		return "", "", false
	}
	return u.Hostname(), u.Port(), true
}

func allowKey(host, port string) string {
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)
}

// allows reports whether the operator lets host be reached as it is.
func (d *Dialer) allows(host, port string) bool {
	return d.allowed[allowKey(host, "")] || d.allowed[allowKey(host, port)]
}

// base is where the WebFinger of a domain is asked.
func (d *Dialer) base(domain string) url.URL {
	if u, told := d.bases[domain]; told {
		return u
	}
	return url.URL{Scheme: "https", Host: domain}
}

// lookup asks the system. What is below localhost is this machine (RFC 6761),
// which not every resolver knows.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if strings.HasSuffix("."+strings.ToLower(host), ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap() // the resolver writes A records so
	}
	return addrs, err
}

// Transport returns a transport that connects as d does, for those who read
// streams: it has no deadline. Redirects are its user's.
func (d *Dialer) Transport() *http.Transport {
	return &http.Transport{
		DialContext:            d.dial,
		TLSClientConfig:        &tls.Config{RootCAs: d.cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    fetchTimeout,
		MaxResponseHeaderBytes: maxHead,
		DisableCompression:     true,
		DisableKeepAlives:      true, // each request is looked at anew
	}
}

// Check says whether u may be asked, as far as its text tells: it fails with
// CodeForbidden. Where its host leads is seen when it is dialed.
func (d *Dialer) Check(u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "" || u.Opaque != "" || u.Scheme != "https" && u.Scheme != "http":
		return refuse("it is no URL of a host", "name an https URL")
	case u.User != nil:
		return refuse("its URL holds a user or password", "name an https URL without one")
	case d.allows(host, port):
		return nil
	case u.Scheme != "https" || port != "443":
		return refuse("it is not https on port 443", "serve it there, or add the host to resolver.allow_hosts")
	case err == nil && !public(ip), err != nil && numeric(host):
		return errPrivate
	}
	return nil
}

// numeric reports whether host, which is no address in its usual form, could be
// read as one: 0x7f.1, 0177.0.0.1 or 2130706433.
func numeric(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last == "" || last[0] >= '0' && last[0] <= '9'
}

func refuse(why, next string) error {
	return &agentbus.Error{
		Code: agentbus.CodeForbidden, Message: "this bus does not go there: " + why,
		Explain: &agentbus.Explain{Rule: "C33", Next: next},
	}
}

var errPrivate = refuse("the host is not on the public network", "if it is meant, its operator adds it to resolver.allow_hosts")

// dial connects to addr, a host and a port. A name is resolved once, and what is
// dialed is an address that was looked at.
func (d *Dialer) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	if !d.allows(host, text) {
		if addrs = slices.DeleteFunc(addrs, func(ip netip.Addr) bool { return !public(ip) }); len(addrs) == 0 {
			return nil, errPrivate
		}
	}
	var failed error
	for _, ip := range addrs[:min(len(addrs), 4)] {
		c, err := d.cfg.Connect(ctx, netip.AddrPortFrom(ip, uint16(port)))
		if err == nil {
			return c, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	addrs, err := d.cfg.Lookup(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("the host has no address")
	}
	return slices.Clone(addrs), err
}

// redirect lets one redirect pass, to where the first request could have gone.
func (d *Dialer) redirect(r *http.Request, via []*http.Request) error {
	if len(via) > 1 {
		return refuse("it redirects more than once", "serve it where it is asked for")
	}
	r.Header.Del("Referer") // it tells who was looked for
	return d.Check(r.URL)
}

// Fetch reads the document at u: at most 256 KiB, within 5 seconds, over one
// redirect at most (C33). accept is what it may be; only JSON is taken. It fails
// with CodeForbidden where d does not go, with CodeAgentNotFound where nothing
// is (404 and 410), and with CodeAgentUnavailable for everything else. No error
// repeats anything that was read.
func (d *Dialer) Fetch(ctx context.Context, u *url.URL, accept string) ([]byte, error) {
	if err := d.Check(u); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, unreadable(u, "it cannot be asked for", err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("User-Agent", "agentbus")
	resp, err := d.client.Do(r)
	if err != nil {
		if refused, ok := errors.AsType[*agentbus.Error](err); ok {
			return nil, refused
		}
		return nil, unreadable(u, "it cannot be reached", err)
	}
	body, err := document(resp)
	if e := resp.Body.Close(); err == nil && e != nil {
		err = e
	}
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone:
		return nil, &agentbus.Error{Code: agentbus.CodeAgentNotFound, Message: "there is nothing at " + place(u), Explain: &agentbus.Explain{Rule: "C35", Observed: resp.StatusCode}}
	case resp.StatusCode != http.StatusOK:
		return nil, unreadable(u, "it answers "+strconv.Itoa(resp.StatusCode), nil)
	case err != nil:
		return nil, unreadable(u, err.Error(), nil)
	}
	return body, nil
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
