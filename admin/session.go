package admin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/identity"
)

const (
	sessionLife = 8 * time.Hour // from signing in, whatever is done meanwhile
	maxSessions = 256           // at once; the oldest one ends for a new one
	csrfField   = "csrf"
)

// A session is a browser whose user signed in with a credential. The credential
// is asked about anew with each request, so that revoking it ends the session.
type session struct {
	credential agentbus.Credential
	csrf       string
	expires    time.Time
}

// sessions are those of this process, by the hash of what the browser holds. The
// zero value has none.
type sessions struct {
	mu  sync.Mutex // guards all
	all map[agentbus.Digest]session
}

// secret returns 32 random bytes as a cookie may hold them.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// open begins a session, and returns what its browser keeps.
func (s *sessions) open(credential agentbus.Credential, now time.Time) (cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[agentbus.Digest]session{}
	}
	var oldest agentbus.Digest
	for id, other := range s.all {
		if now.After(other.expires) {
			delete(s.all, id)
		} else if o, ok := s.all[oldest]; !ok || other.expires.Before(o.expires) {
			oldest = id
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
	cookie = secret()
	s.all[identity.Hash(agentbus.NewCredential(cookie))] = session{credential, secret(), now.Add(sessionLife)}
	return cookie
}

func (s *sessions) find(cookie string, now time.Time) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.all[identity.Hash(agentbus.NewCredential(cookie))]
	return found, ok && now.Before(found.expires)
}

func (s *sessions) close(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, identity.Hash(agentbus.NewCredential(cookie)))
}

// cookieOf returns the cookie of this listener. Browsers tell hosts apart and
// not ports, so that its name does.
func cookieOf(r *http.Request) *http.Cookie {
	_, port, _ := net.SplitHostPort(r.Host)
	return &http.Cookie{ //nolint:gosec // Secure where the listener is reached by TLS
		Name: "agentbus_console" + port, Path: "/console", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", // who forges it locks out themselves
	}
}

// sessionOf finds the session of a request to a page.
func (a *API) sessionOf(r *http.Request) (s session, cookie string, ok bool) {
	c, err := r.Cookie(cookieOf(r).Name)
	if err != nil {
		return session{}, "", false
	}
	s, ok = a.sessions.find(c.Value, time.Now())
	return s, c.Value, ok
}

// signedIn authenticates a request to a page: by a bearer, as any other, or by
// its session. What changes something needs the session's token too.
func (a *API) signedIn(x *request, w http.ResponseWriter, r *http.Request) (agentbus.Principal, error) {
	if len(r.Header["Authorization"]) > 0 {
		return a.identify(r)
	}
	s, _, ok := a.sessionOf(r)
	if !ok {
		return agentbus.Principal{}, &agentbus.Error{
			Code: agentbus.CodeUnauthenticated, Message: "nobody has signed in here", Explain: &agentbus.Explain{Next: "sign in at /console/signin"},
		}
	}
	who, err := a.principal(r.Context(), s.credential)
	if err != nil {
		return who, err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := tooLarge(r.ParseForm()); err != nil {
			return who, err
		}
		if subtle.ConstantTimeCompare([]byte(r.PostFormValue(csrfField)), []byte(s.csrf)) != 1 {
			return who, &agentbus.Error{
				Code: agentbus.CodeForbidden, Message: "this form is not of your session",
				Explain: &agentbus.Explain{Rule: "U5", Next: "go back, reload the page and try again"},
			}
		}
	}
	x.csrf = s.csrf
	return who, nil
}

// principal is who a credential stands for: the one of the configured token, or
// a principal of the bus.
func (a *API) principal(ctx context.Context, authorization agentbus.Credential) (agentbus.Principal, error) {
	if secret, ok := authorization.Token(); ok && !a.cfg.Token.IsZero() {
		sent, own := identity.Hash(secret), identity.Hash(a.cfg.Token)
		if subtle.ConstantTimeCompare(sent[:], own[:]) == 1 {
			return agentbus.Principal{ID: TokenPrincipal, Role: agentbus.PrincipalAdmin}, nil
		}
	}
	return a.cfg.Identifier.Identify(ctx, authorization)
}

func (a *API) showSignIn(w http.ResponseWriter, r *http.Request) error {
	return a.signInPage(w, http.StatusOK, r.URL.Query().Get("next"), nil)
}

func (a *API) signInPage(w http.ResponseWriter, status int, next string, refused error) error {
	c := console.SignIn{For: "8 hours", Next: inside(next), Kind: console.KindRefused}
	if refused != nil {
		c.Refused = problemOf(refused).Message
	}
	return a.console.Render(w, status, "signin", console.Page{Title: "Sign in", Content: c})
}

// signIn begins a session of whoever shows the credential of an admin.
func (a *API) signIn(w http.ResponseWriter, r *http.Request) error {
	x := requestOf(r)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	credential := agentbus.NewCredential("Bearer " + strings.TrimSpace(r.PostFormValue("key")))
	who, err := a.principal(r.Context(), credential)
	if err == nil && who.Role != agentbus.PrincipalAdmin {
		err = errNoOperator()
	}
	if err != nil {
		x.err = err
		return a.signInPage(w, agentbus.CodeOf(err).Status(), r.PostFormValue("next"), err)
	}
	x.who, x.object, x.did.kind = who, who.ID, "session.open"
	cookie := cookieOf(r) //nolint:gosec // see cookieOf
	cookie.Value, cookie.MaxAge = a.sessions.open(credential, time.Now()), int(sessionLife.Seconds())
	http.SetCookie(w, cookie)
	next := inside(r.PostFormValue("next"))
	if next == "" {
		next = "/console/runs"
	}
	http.Redirect(w, r, next, http.StatusSeeOther) // to a page of ours: see inside
	return nil
}

func (a *API) signOut(w http.ResponseWriter, r *http.Request) error {
	if _, value, ok := a.sessionOf(r); ok {
		a.sessions.close(value)
	}
	cookie := cookieOf(r) //nolint:gosec // see cookieOf
	cookie.MaxAge = -1
	http.SetCookie(w, cookie)
	http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
	return nil
}

// inside returns where a link goes when that is a page of the console, else "".
func inside(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/console/") || strings.Contains(u.Path, "..") || strings.ContainsAny(next, "\\\r\n") {
		return ""
	}
	return u.RequestURI()
}
