package admin_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
)

// rows are the keys of the rows of a page whose keys match, in their order.
func (a answer) rows(match string) (keys []string) {
	for _, m := range regexp.MustCompile(`data-key="(`+match+`)[" ]`).FindAllStringSubmatch(a.body, -1) {
		keys = append(keys, m[1])
	}
	return keys
}

// U3: the tables that are read whole are sorted by the server, as the URL says, which
// keeps the filters; the head says by what, and in which direction.
func TestTablesAreSorted(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	b.settle(b.reserve("zoe", "run_z", 5, agentbus.Hold{}), 9_000_000, agentbus.Hold{})
	b.settle(b.hop("", "researcher", 0, -1), 5, agentbus.Hold{})
	for range 2 {
		b.refuse("critic", 1, "run_g.t0.researcher", agentbus.CodeCycleRefused)
	}
	b.refuse("writer", 2, "run_g.t0.researcher", agentbus.CodeInvalidLineage, "depth_regression")
	const payers, spent, edges, remarks = "alice|bob|zoe", "critic|researcher", "[a-z]+ [a-z]+", "run_g [^ ]+"
	s := b.visit()
	for _, c := range []struct{ url, rows, want, head string }{
		{"payers", payers, "alice bob zoe", `"ascending"><a href="/console/payers?">Payer ↑`},
		{"payers?sort=payer", payers, "alice bob zoe", "Payer ↑"},
		{"payers?sort=settled", payers, "zoe alice bob", `aria-sort="descending"><a href="/console/payers?sort=settled">Settled ↓`},
		{"payers?sort=settled&payer=o", payers, "zoe bob", "payer=o&amp;sort=voided"},
		{"payers?sort=reserved", payers, "alice bob zoe", "Reserved ↓"},
		{"payers?sort=voided", payers, "bob alice zoe", "Voided ↓"},
		{"payers?sort=refused", payers, "alice bob zoe", "Refused ↓"},
		{"payers?sort=replays", payers, "alice bob zoe", "From memory ↓"},
		{"payers?sort=rate", payers, "alice bob zoe", "Present rate ↓"},
		{"payers?sort=forecast", payers, "alice bob zoe", "Forecast ↓"},
		{"payers?sort=cap", payers, "alice bob zoe", "Cap ↓"},
		{"payers?sort=remaining&payer=e", payers, "alice zoe", "Remaining ↑"},
		{"payers/alice", spent, "critic researcher", "Settled ↓"},
		{"payers/alice?by_agent=of", spent, "critic researcher", "By agent ↑"},
		{"payers/alice?by_agent=calls&by_run=of", "run_[ag]", "run_a run_g", `<a href="/console/payers/alice?by_agent=calls&amp;by_run=voided#by_run"`},
		{"payers/alice?caps=remaining&stale=reserved", "none", "", "Reserved ↓"},
		{"payers/alice?caps=remaining", "none", "", "Remaining ↓"},
		{"payers/alice?by_run=of&stale=agent", "none", "", `stale=agent#by_run"`},
		{"graph?run=run_g", edges, "app researcher researcher critic researcher writer", "From ↑"},
		{"graph?run=run_g&sort=to", edges, "researcher critic app researcher researcher writer", "To ↑"},
		{"graph?run=run_g&sort=calls", edges, "app researcher researcher critic researcher writer", `run=run_g&amp;sort=cost#calls`},
		{"graph?run=run_g&sort=errors", edges, "researcher critic researcher writer app researcher", `type="hidden" name="sort" value="errors"`},
		{"graph?run=run_g&sort=marks", edges, "app researcher researcher critic researcher writer", "Marks ↓"},
		{"agents", "critic|researcher", "critic researcher", "Agent ↑"},
		{"agents?sort=last", "critic|researcher", "researcher critic", "Last success ↓"},
		{"agents?sort=errors", "critic|researcher", "critic researcher", "Errors ↓"},
		{"agents?sort=state", "critic|researcher", "critic researcher", "State ↑"},
		{"agents?sort=where", "critic|researcher", "researcher critic", "Where ↑"},
		{"inbox?notices=agent", remarks, "run_g run_g.t1.critic run_g run_g.t2.writer", "Agent ↑"},
		{"inbox?notices=times", remarks, "run_g run_g.t1.critic run_g run_g.t2.writer", "Times ↓"},
		{"inbox?notices=what&run=run_g&payer=alice", remarks, "run_g run_g.t1.critic run_g run_g.t2.writer", "What ↑"},
		{"inbox?notices=what&run=run_a", remarks, "", `name="notices" value="what"`},
		{"inbox?payer=bob", remarks, "", "Nothing that waits is like that"},
	} {
		page := s.page("/console/" + c.url)
		if got := strings.Join(page.rows(c.rows), " "); got != c.want || !strings.Contains(page.body, c.head) {
			t.Errorf("%s: %s, want %s; %q stands there: %v", c.url, got, c.want, c.head, strings.Contains(page.body, c.head))
		}
	}
	for _, wrong := range []string{"payers?sort=x", "payers/alice?by_day=x", "graph?sort=x", "agents?sort=x", "inbox?sort=x", "inbox?decided=x", "inbox?notices=x", "payers?by=x"} {
		if a := s.page("/console/" + wrong); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", wrong, a.status)
		}
	}
}

// U3: a page of a sorted table goes on behind the one before, in its order.
func TestSortedTablesArePaged(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	b.settle(b.reserve("zoe", "run_z", 5, agentbus.Hold{}), 9_000_000, agentbus.Hold{})
	asked := []agentbus.InterruptID{b.park("run_i", "zoe"), b.park("run_j", "alice"), b.park("run_k", "mia")}
	s := b.visit()
	for path, c := range map[string]struct {
		rows string
		want []string
	}{
		"/console/payers?limit=1&sort=settled":   {"alice|bob|mia|zoe", []string{"zoe", "alice", "bob"}},
		"/console/payers?limit=2&sort=remaining": {"alice|bob|zoe", []string{"alice", "bob", "zoe"}},
		"/console/inbox?limit=1&sort=payer":      {"", []string{string(asked[1]), string(asked[2]), string(asked[0])}},
		"/console/inbox?limit=2&sort=deadline":   {"", []string{string(asked[0]), string(asked[1]), string(asked[2])}},
	} {
		var got []string
		for next := path; next != ""; {
			page := s.page(next)
			if next = ""; c.rows != "" {
				got = append(got, page.rows(c.rows)...)
			}
			for _, m := range regexp.MustCompile(`<li class="card interrupt" id="([^"]+)"`).FindAllStringSubmatch(page.body, -1) {
				got = append(got, m[1])
			}
			if m := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(page.body); m != nil {
				next = strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", path, got, c.want)
		}
	}
}

// U3: what is read of each payer alone is compared of those that were charged most
// only, and the page says so.
func TestManyPayersAreSortedAsFarAsThePageSays(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	for i := range 501 {
		key := agentbus.TurnKey{Payer: agentbus.Payer("payer" + strconv.Itoa(i)), Agent: "critic", Run: "run_m", ID: "t"}
		b.must(b.store.Record(t.Context(), key.Hash(), agentbus.CallRecord{TurnKey: key, State: agentbus.CallRefused, Code: agentbus.CodeAgentNotFound, Began: began, Ended: began}))
	}
	last := b.reserve("zoe", "run_z", 1, agentbus.Hold{})
	b.must(b.store.Settle(t.Context(), agentbus.Settlement{ID: last.ID, Attempt: 1, Reply: agentbus.StoredReply{Status: 200, Header: http.Header{}}, Cost: 5, Ended: time.Now()}))
	s := b.visit()
	s.page("/console/payers?sort=rate&limit=1").shows(t, "payers by rate", `data-key="zoe"`, "of 502 payers, the 500 that were charged most are sorted by that", "not", `data-key="payer`)
	s.page("/console/payers?sort=refused&limit=1").shows(t, "payers by refusals", "502 payers", "not", "charged most")
}

// U3, U15: who decides in an inbox that is filtered and sorted comes back to it.
func TestTheInboxStaysAsItWasFiltered(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	id := b.park("run_i", "zoe")
	s := b.visit()
	page := s.page("/console/inbox?payer=zoe&sort=deadline&decided=by")
	m := regexp.MustCompile(`action="(/console/inbox/` + string(id) + `[^"]*)"`).FindStringSubmatch(page.body)
	if m == nil {
		t.Fatalf("no form in %s", page.body)
	}
	a := s.post(strings.ReplaceAll(m[1], "&amp;", "&"), url.Values{"decision": {"denied"}})
	if want := "/console/inbox?chosen=" + string(id) + "&decided=by&payer=zoe&sort=deadline#" + string(id); a.header.Get("Location") != want {
		t.Errorf("it leads to %s, want %s", a.header.Get("Location"), want)
	}
	s.page("/console/inbox?payer=zoe&decided=by").shows(t, "decided", "Who decided ↑", "denied", "Nothing that waits is like that")
}

// U3: what waits beyond the first page is on the next, and no count says less than
// there is.
func TestManyInterruptsArePaged(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	for i := range 51 {
		b.park(agentbus.RunID("run_"+strconv.Itoa(i)), "zoe")
	}
	page := b.visit().page("/console/inbox")
	page.shows(t, "inbox", "51 waiting", `<span class="depth">50+</span>`, "50 of 51", `rel="next"`)
	if n := strings.Count(page.body, `<li class="card interrupt"`); n != 50 {
		t.Errorf("%d stand on the first page", n)
	}
}
