package a2a_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

func fetch(t *testing.T, d *a2a.Dialer, at string) (string, error) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	body, err := d.Fetch(t.Context(), u, "application/json")
	if err != nil && strings.Contains(agentbus.AsError(err).Message, "@") { // X32
		t.Errorf("%s: %v names somebody", at, err)
	}
	return string(body), err
}

// C33, X31: URLs that are refused as they stand: nothing is looked up, nobody is
// dialed.
func TestRefusedURLs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dialer(t)
	for _, at := range []string{
		"http://example.com/x", "https://example.com:8443/x", "http://example.com:443/x", "ftp://example.com/x", "https:///x", "https:example.com/x", "//example.com/x",
		"https://user@example.com/x", "https://user:password@example.com/x",
		"https://169.254.169.254/latest/meta-data", "https://127.0.0.1/", "https://127.1/", "https://0177.0.0.1/", "https://0x7f.0.0.1/", "https://2130706433/",
		"https://0x7f000001/", "https://127.0.0.1./", "https://10.0.0.1/", "https://0.0.0.0/", "https://[::1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/",
		"https://[::ffff:93.184.215.14]/", "https://[fe80::1%25eth0]/", "https://[fd00::1]/", "https://[64:ff9b::5db8:d70e]/",
	} {
		if _, err := fetch(t, d, at); agentbus.CodeOf(err) != agentbus.CodeForbidden {
			t.Errorf("%s: %v, want forbidden", at, err)
		}
	}
	if lookups, dialed := w.asked(); len(lookups)+len(dialed) > 0 {
		t.Errorf("looked up %v, dialed %v", lookups, dialed)
	}
}

// C33, X31: a host whose name leads to what is not the public network is not
// dialed.
func TestRefusedAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answer("example.com/x", "application/json", "{}")
	d := w.dialer(t)
	for _, ip := range []string{
		"127.0.0.1", "127.255.255.254", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", // loopback, private
		"169.254.169.254", "169.254.0.1", "100.64.0.1", "100.127.255.255", // link-local, CGNAT
		"224.0.0.1", "239.1.2.3", "0.0.0.0", "0.1.2.3", "255.255.255.255", "240.0.0.1", // multicast, unspecified, broadcast, reserved
		"192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "192.0.0.8", "192.88.99.1",
		"::1", "::", "fe80::1", "fec0::1", "fc00::1", "fdff::1", "ff02::1", "::7f00:1", "100::1", "2001:db8::1", "3fff::1",
		"::ffff:127.0.0.1", "::ffff:93.184.215.14", // mapped
		"64:ff9b::7f00:1", "64:ff9b::5db8:d70e", "64:ff9b:1::1", // NAT64
		"2002:7f00:1::1", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe", // 6to4 and Teredo of private ones
	} {
		w.names["example.com"] = [][]string{{ip}}
		if _, err := fetch(t, d, "https://example.com/x"); agentbus.CodeOf(err) != agentbus.CodeForbidden {
			t.Errorf("%s: %v, want forbidden", ip, err)
		}
	}
	if _, dialed := w.asked(); len(dialed) > 0 {
		t.Errorf("dialed %v", dialed)
	}
	w.names["example.com"] = [][]string{{"10.0.0.1", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "127.0.0.1", somewhere}}
	if _, err := fetch(t, d, "https://example.com/x"); err != nil {
		t.Error(err)
	}
	if _, dialed := w.asked(); !cmp.Equal(dialed, []string{"[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443"}) {
		t.Errorf("dialed %v, want the first public address alone", dialed)
	}
}

// C33, X31: the address that was looked at is the one that is dialed, whatever
// the name says afterwards.
func TestRebinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answer("example.com/x", "application/json", "{}")
	w.names["example.com"] = [][]string{{somewhere}, {"127.0.0.1"}}
	d := w.dialer(t)
	if _, err := fetch(t, d, "https://example.com/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t, d, "https://example.com/x"); agentbus.CodeOf(err) != agentbus.CodeForbidden {
		t.Errorf("after rebinding: %v, want forbidden", err)
	}
	lookups, dialed := w.asked()
	if want := []string{somewhere + ":443"}; !cmp.Equal(dialed, want) || len(lookups) != 2 {
		t.Errorf("dialed %v after %d lookups, want %v after one each", dialed, len(lookups), want)
	}
}

// C33: one redirect is followed, to where the first request could have gone.
func TestRedirects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.names["inside.example.com"] = [][]string{{"10.0.0.1"}}
	w.answer("cards.example.com/x", "application/json", "{}")
	w.answer("inside.example.com/x", "application/json", "{}")
	for from, to := range map[string]string{
		"/once": "https://cards.example.com/x", "/twice": "https://cards.example.com/once", "/private": "https://10.0.0.1/x", "/inside": "https://inside.example.com/x",
		"/metadata": "https://169.254.169.254/", "/plain": "http://cards.example.com/x", "/port": "https://cards.example.com:8443/x", "/user": "https://u:p@cards.example.com/x",
		"/file": "file:///etc/passwd",
	} {
		w.mux.Handle("example.com"+from, http.RedirectHandler(to, http.StatusFound))
	}
	w.mux.Handle("cards.example.com/once", http.RedirectHandler("https://cards.example.com/x", http.StatusFound))
	d := w.dialer(t)
	for from, want := range map[string]agentbus.Code{
		"/once": "", "/twice": agentbus.CodeForbidden, "/private": agentbus.CodeForbidden, "/inside": agentbus.CodeForbidden, "/metadata": agentbus.CodeForbidden,
		"/plain": agentbus.CodeForbidden, "/port": agentbus.CodeForbidden, "/user": agentbus.CodeForbidden, "/file": agentbus.CodeForbidden,
	} {
		if _, err := fetch(t, d, "https://example.com"+from); agentbus.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", from, err, want)
		}
	}
	for _, to := range w.dialed {
		if to != somewhere+":443" {
			t.Errorf("dialed %s", to)
		}
	}
}

// C33: what is read is bounded, and must be JSON.
func TestDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 256 << 10
	w.answer("example.com/most", "application/json", strings.Repeat(" ", most))
	w.answer("example.com/more", "application/json", strings.Repeat(" ", most+1))
	w.mux.HandleFunc("example.com/endless", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jrd+json; charset=utf-8")
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	w.mux.HandleFunc("example.com/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
	})
	w.mux.HandleFunc("example.com/head", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Long", strings.Repeat("x", 100<<10))
	})
	w.answer("example.com/page", "text/html", "<html>")
	w.answer("example.com/text", "text/plain", "{}")
	w.mux.Handle("example.com/gone", http.RedirectHandler("", http.StatusGone))
	w.mux.Handle("example.com/broken", http.RedirectHandler("", http.StatusInternalServerError))
	d := w.dialer(t)
	for path, want := range map[string]agentbus.Code{
		"/most": "", "/more": agentbus.CodeAgentUnavailable, "/endless": agentbus.CodeAgentUnavailable, "/cut": agentbus.CodeAgentUnavailable, "/head": agentbus.CodeAgentUnavailable,
		"/page": agentbus.CodeAgentUnavailable, "/text": agentbus.CodeAgentUnavailable, "/broken": agentbus.CodeAgentUnavailable,
		"/gone": agentbus.CodeAgentNotFound, "/nothing": agentbus.CodeAgentNotFound,
	} {
		body, err := fetch(t, d, "https://example.com"+path)
		if agentbus.CodeOf(err) != want || want == "" && len(body) != most {
			t.Errorf("%s: %d bytes, %v, want %q", path, len(body), err, want)
		}
	}
}

// C33: no credential, no cookie and no referer is sent; what a server sets is
// forgotten.
func TestNothingIsToldToStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen []http.Header
	w.mux.HandleFunc("example.com/", func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Clone())
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1", Secure: true})
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
	})
	d := w.dialer(t)
	for range 2 {
		if _, err := fetch(t, d, "https://example.com/a"); err != nil {
			t.Fatal(err)
		}
	}
	want := http.Header{"Accept": {"application/json"}, "User-Agent": {"agentbus"}, "Connection": {"close"}}
	for _, h := range seen {
		if diff := cmp.Diff(want, h); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	}
}

// C33: five seconds, for everything, however a server spends them.
func TestFetchTakesFiveSeconds(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"drips": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"))
			for {
				<-time.After(time.Second)
				if _, err := c.Write([]byte(" ")); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				d, err := a2a.NewDialer(a2a.DialerConfig{
					AllowHosts: []string{"bus.internal:80"},
					Lookup: func(context.Context, string) ([]netip.Addr, error) {
						return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
					},
					Connect: func(context.Context, netip.AddrPort) (net.Conn, error) {
						near, far := net.Pipe()
						go func() { // ends when Fetch closes the pipe
							defer close(ended)
							if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
								serve(far)
							}
						}()
						return near, nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, err = fetch(t, d, "http://bus.internal/x")
				if took := time.Since(began); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable || took != 5*time.Second {
					t.Errorf("%v after %v", err, took)
				}
				<-ended
			})
		})
	}
}

// C33: resolver.allow_hosts lets private hosts be reached, over plain HTTP too,
// and nothing beside them.
func TestAllowHosts(t *testing.T) {
	t.Parallel()
	for entry, urls := range map[string]map[string]bool{
		"bus.internal":             {"http://bus.internal/x": true, "https://bus.internal:8443/x": true, "http://BUS.internal:1/x": true, "http://a.bus.internal/x": false, "https://10.0.0.1/x": false},
		"bus.internal:8080":        {"http://bus.internal:8080/x": true, "http://bus.internal/x": false, "https://bus.internal/x": true, "https://bus.internal:8081/x": false},
		"http://bus.internal:8080": {"http://bus.internal:8080/x": true, "http://bus.internal:8081/x": false},
		"10.0.0.1":                 {"http://10.0.0.1:9/x": true, "http://10.0.0.2/x": false},
		"[::1]:8080":               {"http://[::1]:8080/x": true, "http://[::1]/x": false},
	} {
		w := newWorld(t)
		d := w.dialer(t, entry)
		for at, want := range urls {
			u, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Check(u); (err == nil) != want {
				t.Errorf("%s with %s: %v", at, entry, err)
			}
		}
	}
	for _, entry := range []string{"", "https://bus.internal", "bus.internal/x", "bus.internal:", "u@bus.internal", "a b", ":80", "::1", "bus:x"} {
		if _, err := a2a.NewDialer(a2a.DialerConfig{AllowHosts: []string{entry}}); err == nil {
			t.Errorf("%q was taken", entry)
		}
	}
}

// A17: a webhook is judged as what the bus would call itself, and by all of its
// addresses: another machine chooses one.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.names["inside.example.com"] = [][]string{{"10.0.0.1"}}
	w.names["both.example.com"] = [][]string{{somewhere, "169.254.169.254"}}
	d := w.dialer(t, "hooks.internal:8080", "inside.internal:443")
	w.names["hooks.internal"] = [][]string{{"10.0.0.1"}}
	w.names["inside.internal"] = [][]string{{"10.0.0.1"}}
	for text, want := range map[string]agentbus.Code{
		"https://example.com/hook": "", "http://hooks.internal:8080/hook": "", "https://inside.internal/hook": "",
		"https://inside.example.com/": agentbus.CodeForbidden, "https://both.example.com/": agentbus.CodeForbidden, "http://example.com/": agentbus.CodeForbidden,
		"https://169.254.169.254/": agentbus.CodeForbidden, "https://u:p@example.com/": agentbus.CodeForbidden, "": agentbus.CodeForbidden, "::": agentbus.CodeForbidden,
		"javascript:alert(1)": agentbus.CodeForbidden,
	} {
		if err := d.Webhook(t.Context(), text); agentbus.CodeOf(err) != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, dialed := w.asked(); len(dialed) > 0 {
		t.Errorf("dialed %v", dialed)
	}
}

// A host that cannot be resolved or reached is unavailable, and the caller's end
// is the end.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	broken := errors.New("no such host")
	for name, c := range map[string]a2a.DialerConfig{
		"lookup":  {Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, broken }},
		"nothing": {Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, nil }},
		"connect": {
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr(somewhere)}, nil
			},
			Connect: func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, broken },
		},
	} {
		d, err := a2a.NewDialer(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fetch(t, d, "https://example.com/x"); agentbus.CodeOf(err) != agentbus.CodeAgentUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
