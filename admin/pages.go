package admin

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin/console"
)

// anyone is the role of who has shown no credential: for the few routes without
// which nobody could sign in.
const anyone agentbus.PrincipalRole = "anyone"

// pages returns the routes of the console. They take a session beside a bearer,
// and answer with HTML; what they show is what the read models of the API found.
func (a *API) pages() []route {
	open := []agentbus.PrincipalRole{anyone}
	return []route{
		{"GET /{$}", open, toRuns},
		{"GET /console/{$}", open, toRuns},
		{"GET " + console.AssetPath + "{name}", open, a.showAsset},
		{"GET /console/signin", open, a.showSignIn},
		{"POST /console/signin", open, a.signIn},
		{"POST /console/signout", operators, a.signOut},
		{"GET /console/", operators, noPage},
		{"GET /console/runs", operators, a.showRunsPage},
		{"GET /console/live", operators, a.followRuns},
		{"GET /console/runs/{run}", operators, a.showRunPage},
		{"GET /console/runs/{run}/live", operators, a.followRun},
		{"POST /console/runs/{run}/stop", operators, a.stopPage},
		{"POST /console/runs/{run}/resume", operators, a.resumePage},
		{"POST /console/runs/{run}/fork", operators, a.forkPage},
		{"POST /console/runs/{run}/replay", operators, a.replayPage},
		{"GET /console/graph", operators, a.showGraphPage},
		{"GET /console/payers", operators, a.showPayersPage},
		{"GET /console/payers/{payer}", operators, a.showPayerPage},
		{"GET /console/ledger/export", operators, a.exportEntries},
		{"POST /console/ledger/verify", operators, a.verifyPage},
		{"GET /console/agents", operators, a.showAgentsPage},
		{"GET /console/agents/{name}", operators, a.showAgentPage},
		{"POST /console/agents/{name}/probe", operators, a.probePage},
		{"POST /console/agents/{name}/drain", operators, a.drainPage},
		{"POST /console/agents/{name}/enable", operators, a.enablePage},
		{"GET /console/inbox", operators, a.showInboxPage},
		{"POST /console/inbox/{id}", operators, a.decidePage},
		{"GET /console/live/agents", operators, a.followAgents},
		{"GET /console/live/inbox", operators, a.followInbox},
	}
}

// isPage reports whether a route of this pattern is one of the console's.
func isPage(pattern string) bool {
	_, path, _ := strings.Cut(pattern, " ")
	return path == "/{$}" || strings.HasPrefix(path, "/console/")
}

func toRuns(w http.ResponseWriter, r *http.Request) error {
	http.Redirect(w, r, "/console/runs", http.StatusSeeOther)
	return nil
}

func noPage(http.ResponseWriter, *http.Request) error {
	return notFound("such page", "see the screens above")
}

func (a *API) showAsset(w http.ResponseWriter, r *http.Request) error {
	if !a.console.ServeAsset(w, r.PathValue("name")) {
		return notFound("such asset", "reload the page that names it")
	}
	return nil
}

// page answers with a screen, in the frame that all of them have.
func (a *API) page(w http.ResponseWriter, r *http.Request, screen string, p console.Page) error {
	if err := a.frame(r, &p); err != nil {
		return err
	}
	return a.console.Render(w, http.StatusOK, screen, p)
}

// frame fills in what every page of a request has.
func (a *API) frame(r *http.Request, p *console.Page) error {
	x := requestOf(r)
	p.Who, p.CSRF = x.who.ID, x.csrf
	p.Screens = console.Screens()
	p.Strip = strip(a.vitals(r.Context()))
	waiting, err := a.cfg.Interrupts.Interrupts(r.Context(), agentbus.InterruptQuery{Limit: openShown + 1})
	for i := range p.Screens {
		if p.Screens[i].URL == "/console/inbox" {
			p.Screens[i].Count, p.Screens[i].More = min(len(waiting), openShown), len(waiting) > openShown
		}
	}
	return err
}

// failPage answers a request to a page with an error: whoever has not signed in
// is asked to, and comes back to where they were.
func (a *API) failPage(w http.ResponseWriter, r *http.Request, err error) {
	x := requestOf(r)
	x.err = err
	code := agentbus.CodeOf(err)
	if code == agentbus.CodeUnauthenticated && r.Method == http.MethodGet && !wantsStream(r) {
		http.Redirect(w, r, "/console/signin?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return
	}
	told := problemOf(err)
	if code == agentbus.CodeUnauthenticated {
		screen := "/console/runs"
		for _, s := range console.Screens() {
			if strings.HasPrefix(r.URL.Path, s.URL) {
				screen = s.URL
			}
		}
		told.Title, told.Message, told.Next = "You are signed out", "Nothing was changed: the session is over, or its key was revoked.", ""
		told.URL, told.Link = "/console/signin?next="+url.QueryEscape(screen), "Sign in"
	}
	p := console.Page{Title: "Problem", Content: told}
	if x.who.Role == agentbus.PrincipalAdmin {
		_ = a.frame(r, &p) // without it the page still says what is wrong
	}
	if e := a.console.Render(w, code.Status(), "problem", p); e != nil {
		x.fail(w, errors.Join(err, e))
	}
}

// problemOf is what people are told of an error: what callers are told of it.
func problemOf(err error) console.Problem {
	p := console.Problem{Title: "This did not work", Message: "the bus could not do this", Code: agentbus.CodeOf(err), URL: "/console/runs", Link: "All runs"}
	if e, ok := errors.AsType[*agentbus.Error](err); ok {
		p.Message = e.Message
		if _, aRoute := errors.AsType[*listed](err); e.Explain != nil && !aRoute {
			p.Next = e.Explain.Next
		}
	}
	if p.Code.Status() == http.StatusNotFound {
		p.Title = "Nothing is here"
	}
	return p
}
