package a2a

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
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
	host, port := u.Hostname(), portOf(u)
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

// portOf is the port of u, told or not.
func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return map[string]string{"https": "443", "http": "80"}[u.Scheme]
}

// Webhook judges a URL that somebody wants another machine to call (A17): it is
// refused as Check does, and where any address of its host is not public. The
// caller looks the name up again, so the answer is no promise.
func (d *Dialer) Webhook(ctx context.Context, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return refuse("it is no URL", "name an https URL")
	}
	if err := d.Check(u); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	addrs, err := d.resolve(ctx, u.Hostname())
	if err != nil {
		return refuse("its host is not known", "name a host that DNS knows")
	}
	if !d.allows(u.Hostname(), portOf(u)) && slices.ContainsFunc(addrs, func(ip netip.Addr) bool { return !public(ip) }) {
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
	if d.Check(r.URL) != nil {
		return refuse("it redirects to where this bus does not go", "serve it where it is asked for")
	}
	return nil
}
