package admin_test

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/internal/httpx"
)

// A list is a page, of whose items one member is looked at.
type list struct {
	Data []map[string]any
	Next string
}

// read follows a list to its end in pages of a size, and returns a member of
// each item.
func (b *bus) read(path string, size int, member string) (got []any) {
	b.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	for cursor := ""; ; {
		page := into[list](b.t, b.get(path+separator+"limit="+strconv.Itoa(size)+"&cursor="+url.QueryEscape(cursor)))
		if len(page.Data) > size || len(page.Data) == 0 && cursor != "" {
			b.t.Fatalf("%s: a page of %d items, of %d at most", path, len(page.Data), size)
		}
		for _, item := range page.Data {
			got = append(got, item[member])
		}
		if cursor = page.Next; cursor == "" {
			return got
		}
	}
}

// Lists page by opaque cursor, and a page is never empty but the first.
func TestLists(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	for _, path := range []string{"/runs", "/calls/live", "/calls/unfinished", "/keys", "/ledger/balances", "/ledger/entries?payer=alice", "/runs/run_x/calls", "/runs/run_x/executions"} {
		if got := b.get("/admin/v1" + path); got.status != http.StatusOK || got.body != `{"data":[]}`+"\n" {
			t.Errorf("an empty bus lists %s as %d %s", path, got.status, got.body)
		}
	}
	b.fill()
	for _, tt := range []struct {
		path, member string
		want         []any
	}{
		{"/runs", "run", []any{"run_c", "run_b", "run_a"}},
		{"/runs/run_a/calls", "id", []any{1.0, 2.0, 3.0, 6.0}},
		{"/runs/run_a/executions", "id", []any{"run_a"}},
		{"/executions/run_a/turns", "index", []any{0.0, 1.0, 2.0}},
		{"/executions/run_a/events", "position", []any{0.0, 1.0, 2.0}},
		{"/calls/live", "run", []any{"run_c"}},
		{"/calls/unfinished", "run", []any{"run_c"}},
		{"/agents", "name", []any{"critic", "researcher"}},
		{"/keys", "handle", []any{"ab_aaaaaa"}},
		{"/budgets", "account", []any{budgets[0].Account, budgets[1].Account}},
		{"/ledger/balances", "payer", []any{"alice", "bob"}},
		{"/ledger/balances?payer=bob", "payer", []any{"bob"}},
		{"/ledger/entries?payer=alice", "seq", []any{1.0, 2.0, 3.0}},
	} {
		for _, size := range []int{1, 2, 1000} {
			if diff := cmp.Diff(tt.want, b.read("/admin/v1"+tt.path, size, tt.member)); diff != "" {
				t.Errorf("%s in pages of %d (-want +got):\n%s", tt.path, size, diff)
			}
		}
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "cursor=%25", "cursor=eA", "offset=1", "%zz"} {
		if got := b.get("/admin/v1/calls/unfinished?" + query); got.code() != agentbus.CodeInvalidRequest {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// Money is an integer of micros with a decimal beside it; a text that looks like
// it stays a text.
func TestMoney(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	run := into[map[string]any](t, b.get("/admin/v1/runs/run_a"))
	if run["cost_micros"] != 3e6 || run["cost_usd"] != "3.000000" || run["stopped"] != false || run["began"] != "2026-11-21T07:00:00Z" {
		t.Errorf("run: %v", run)
	}
	if body := b.get("/admin/v1/runs/run_a/executions").body; !strings.Contains(body, `"seed":"say \"cost_micros\":1"`) {
		t.Errorf("a seed was changed: %s", body)
	}
	if body := b.get("/admin/v1/calls/live").body; !strings.Contains(body, `"began":"2026-11-21T07:00:04Z"`) {
		t.Errorf("a time is not in UTC: %s", body)
	}
	for body, want := range map[string]string{
		`{"a_micros":-1}`:                       `{"a_micros":-1,"a_usd":"-0.000001"}`,
		`{"x":{"b_c_micros":12500000},"y":1}`:   `{"x":{"b_c_micros":12500000,"b_c_usd":"12.500000"},"y":1}`,
		`{"a_micros":99999999999999999999}`:     `{"a_micros":99999999999999999999}`,
		`{"text":"\"a_micros\":1, \\","b":"_"}`: `{"text":"\"a_micros\":1, \\","b":"_"}`,
	} {
		if got := admin.WithUSD(body); got != want {
			t.Errorf("%s became %s, want %s", body, got, want)
		}
	}
	want := map[string]any{
		"account": budgets[0].Account, "limit_micros": 5e6, "limit_usd": "5.000000", "held_micros": 2e6, "held_usd": "2.000000",
		"spent_micros": 3e6, "spent_usd": "3.000000", "left_micros": 0.0, "left_usd": "0.000000", "strict": true, "calls": 4.0, "opened": "2026-11-21T07:00:00Z",
	}
	if diff := cmp.Diff(want, into[list](t, b.get("/admin/v1/budgets")).Data[0]); diff != "" { // G27
		t.Errorf("budget (-want +got):\n%s", diff)
	}
}

// G4: the secret of a key is in one answer, and it works; a revoked key does not.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	made := into[struct {
		Handle, Secret string
		Principal      agentbus.Principal
	}](t, b.request("POST", "/admin/v1/keys", adminKey, `{"id":"zoe","role":"admin"}`))
	if diff := cmp.Diff(agentbus.Principal{ID: "zoe", Role: agentbus.PrincipalAdmin}, made.Principal); diff != "" || made.Secret == "" {
		t.Errorf("principal (-want +got):\n%s", diff)
	}
	if got := b.request("GET", "/admin/v1/keys", made.Secret, ""); got.status != http.StatusOK || strings.Contains(got.body, made.Secret) || !strings.Contains(got.body, made.Handle) {
		t.Errorf("the new key lists %d %s", got.status, got.body)
	}
	for body, code := range map[string]agentbus.Code{
		"":                                     agentbus.CodeUnsupportedContent,
		"{":                                    agentbus.CodeInvalidRequest,
		"[]":                                   agentbus.CodeInvalidRequest,
		"{}":                                   agentbus.CodeInvalidRequest,
		`{"id":"a b"}`:                         agentbus.CodeInvalidRequest,
		`{"id":"a","role":"root"}`:             agentbus.CodeInvalidRequest,
		`{"id":"a","secret":"x"}`:              agentbus.CodeInvalidRequest,
		`{"id":"a"}{"id":"b"}`:                 agentbus.CodeInvalidRequest,
		strings.Repeat(" ", 1<<17):             agentbus.CodeRequestTooLarge,
		`{"id":"` + strings.Repeat("a", 1<<17): agentbus.CodeRequestTooLarge,
	} {
		if got := b.request("POST", "/admin/v1/keys", adminKey, body); got.code() != code {
			t.Errorf("%.40q: %d %s, want %s", body, got.status, got.body, code)
		}
	}
	if got := b.request("DELETE", "/admin/v1/keys/"+made.Secret, adminKey, ""); got.code() != agentbus.CodeNotFound {
		t.Errorf("a secret is no handle: %d %s", got.status, got.body)
	}
	if got := into[struct{ Revoked int }](t, b.request("DELETE", "/admin/v1/keys/"+made.Handle, adminKey, "")); got.Revoked != 1 {
		t.Errorf("revoked %d keys", got.Revoked)
	}
	if got := b.request("GET", "/admin/v1/keys", made.Secret, ""); got.status != http.StatusUnauthorized {
		t.Errorf("a revoked key: %d %s", got.status, got.body)
	}
	if log := b.log.String(); strings.Contains(log, made.Secret) || !strings.Contains(log, `"object":"zoe `+made.Handle+` admin","by":"ops"`) {
		t.Errorf("the log is\n%s", log)
	}
}

// Each mutation, and each attempt at one, leaves a line that says who it was;
// what only reads leaves none.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	b.get("/admin/v1/runs")
	b.request("POST", "/admin/v1/runs/run_c/stop", tokenKey, "")
	b.request("POST", "/admin/v1/runs/run_c/stop", userKey, "")
	b.request("POST", "/admin/v1/runs/run_c/stop", "", "")
	b.request("POST", "/admin/v1/calls/7/void", adminKey, "")
	b.request("DELETE", "/nothing", adminKey, "")
	var got [][4]string
	for line := range strings.Lines(b.log.String()) {
		var l struct{ Action, Object, By, Code string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		got = append(got, [4]string{l.Action, l.Object, l.By, l.Code})
	}
	const stop = "POST /admin/v1/runs/{run}/stop"
	want := [][4]string{
		{stop, "run_c", "admin-token", ""},
		{stop, "", "", "forbidden"},
		{stop, "", "", "unauthenticated"},
		{"POST /admin/v1/calls/{id}/void", "7", "ops", "not_found"},
		{"", "", "ops", "not_found"},
	}
	want[1][2] = "user"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// G14: a run is stopped with its live calls, known or not.
func TestStop(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	for _, tt := range []struct {
		run  string
		want string
	}{
		{"run_c", `{"run":"run_c","stopped":true,"known":true,"cancelled":1}`},
		{"run_new", `{"run":"run_new","stopped":true,"known":false,"cancelled":0}`},
		{"a/b-c..%", `{"run":"a/b-c..%","stopped":true,"known":false,"cancelled":0}`},
		{".", `{"run":".","stopped":true,"known":false,"cancelled":0}`}, // P4 lets a caller call its run so
		{"..", `{"run":"..","stopped":true,"known":false,"cancelled":0}`},
	} {
		if got := b.request("POST", "/admin/v1/runs/"+httpx.Segment(tt.run)+"/stop", adminKey, ""); got.body != tt.want+"\n" {
			t.Errorf("%s: %d %s", tt.run, got.status, got.body)
		}
	}
	if run := into[map[string]any](t, b.get("/admin/v1/runs/run_c")); run["stopped"] != true {
		t.Errorf("run: %v", run)
	}
	for _, id := range []string{"run c", "run_c\n", "run_é", "a,b", strings.Repeat("x", 513)} { // P4: no run can have it
		if got := b.request("POST", "/admin/v1/runs/"+url.PathEscape(id)+"/stop", adminKey, ""); got.status != http.StatusBadRequest || !strings.Contains(got.body, "not the id of a run") {
			t.Errorf("%.20q: %d %s", id, got.status, got.body)
		}
	}
}

// G28: an export is every entry, in both forms; what a caller chose is no
// formula in a spreadsheet.
func TestExport(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.fill()
	b.settle(b.reserve("alice", "=cmd()", 8, agentbus.Hold{}), 1, agentbus.Hold{})
	lines := strings.Split(strings.TrimSpace(b.get("/admin/v1/ledger/export").body), "\n")
	table, err := csv.NewReader(strings.NewReader(b.get("/admin/v1/ledger/export?format=csv").body)).ReadAll()
	if err != nil || len(lines) != 5 || len(table) != 6 {
		t.Fatalf("%d lines, %d rows, %v", len(lines), len(table), err)
	}
	prev := ""
	for i, line := range lines {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		for column, name := range table[0] {
			got := table[i+1][column]
			want, isText := e[name].(string)
			if n, isNumber := e[name].(float64); isNumber {
				want = strconv.FormatInt(int64(n), 10)
			}
			if got != want && got != "'"+want || isText && strings.HasPrefix(got, "=") {
				t.Errorf("row %d: %s is %q, in JSON %q", i, name, got, want)
			}
		}
		if e["payer"] == "alice" {
			if prev != "" && e["prev"] != prev {
				t.Errorf("line %d does not follow the one before", i)
			}
			prev, _ = e["hash"].(string)
		}
	}
	if got := b.get("/admin/v1/ledger/export?payer=bob").body; strings.Count(got, "\n") != 1 || !strings.Contains(got, `"kind":"void"`) {
		t.Errorf("bob: %s", got)
	}
	for _, query := range []string{"format=xml", "payr=bob"} {
		if got := b.get("/admin/v1/ledger/export?" + query); got.code() != agentbus.CodeInvalidRequest {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	if got := b.request("POST", "/admin/v1/ledger/verify", adminKey, "").body; !strings.HasPrefix(got, `{"ok":true,"payers":2,"entries":5,"charged_micros":3000001,"charged_usd":"3.000001"`) {
		t.Errorf("verify: %s", got)
	}
}

// What broke is told to the log, not to the caller (P19).
func TestABrokenStore(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	b.must(b.store.Close())
	got := b.get("/admin/v1/keys")
	if got.code() != agentbus.CodeStoreUnavailable || got.header.Get("Retry-After") == "" || got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	if log := b.log.String(); !strings.Contains(log, `"code":"store_unavailable"`) || !strings.Contains(log, got.header.Get("X-Request-Id")) {
		t.Errorf("the log is %s", log)
	}
}
