package admin_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/admin/console"
	"github.com/agentbus/agentbus/internal/openapi"
)

const recordedBody = `{"model":"critic","messages":["<b>say</b>"]}`

// record fills the bus with a call of which a request is recorded, and returns its
// id.
func (b *bus) record(body string, size int64) (call int64) {
	b.t.Helper()
	key := agentbus.TurnKey{Payer: "alice", Agent: "critic", Run: "run_r", ID: "run_r.t0.critic"}
	got, err := b.store.Reserve(b.t.Context(), agentbus.Reservation{
		Key: key.Hash(), Call: agentbus.CallRecord{TurnKey: key, RequestID: "req", Caller: "alice", Owner: "host/1/2", Began: began},
		Recording: &agentbus.Recording{Body: body, Size: size, Cut: size > int64(len(body)), In: http.Header{"X-Tangle-Runid": {"run_r"}, "X_tangle_runid": {"a", "b"}}},
	})
	b.must(err)
	b.must(b.store.Settle(b.t.Context(), agentbus.Settlement{
		ID: got.Call.ID, Attempt: 1, Ended: began, Sent: http.Header{"X-Tangle-Runid": {"run_r"}, "X-Tangle-Forwarded-Depth": {"1"}},
	}))
	return got.Call.ID
}

// U11: what a call was asked is told where content may be shown; its headers, side
// by side and with changes marked, in any case.
func TestRecording(t *testing.T) {
	t.Parallel()
	d := openapi.Read(t, "openapi.json")
	for _, content := range []bool{false, true} {
		b := open(t, func(c *admin.Config) { c.Content = content })
		id := b.record(recordedBody, 1_000)
		const pattern = "/admin/v1/calls/{id}/recording"
		got := b.get(strings.ReplaceAll(pattern, "{id}", strconv.FormatInt(id, 10)))
		d.Check(t, "GET", pattern, openapi.Answer{Status: got.status, ContentType: got.header.Get("Content-Type"), Body: got.body})
		want := console.Recording{Call: id, Attempt: 1, At: began, Size: 1_000, Shown: content, Headers: []console.Header{
			{Name: "x-tangle-forwarded-depth", Out: "1", Changed: true}, {Name: "x-tangle-runid", In: "run_r", Out: "run_r"}, {Name: "x_tangle_runid", In: "a, b", Changed: true},
		}}
		if content {
			want.Body, want.Cut = recordedBody, true
		}
		if diff := cmp.Diff(want, into[console.Recording](t, got)); diff != "" {
			t.Errorf("with content %t (-want +got):\n%s", content, diff)
		}
		for _, none := range []string{"7", "0", "x"} {
			got := b.get(strings.ReplaceAll(pattern, "{id}", none))
			if got.status != http.StatusNotFound || !strings.Contains(got.body, "recording.requests") {
				t.Errorf("of call %s: %d %s", none, got.status, got.body)
			}
			d.Check(t, "GET", pattern, openapi.Answer{Status: got.status, ContentType: got.header.Get("Content-Type"), Body: got.body})
		}
	}
}

// U11: the inspector shows what a turn was asked, only where content may be shown
// and as text, says where it was cut, and which headers it shows.
func TestInspectorOfARecording(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body   string
		size   int64
		hidden bool
		want   string
	}{
		{recordedBody, int64(len(recordedBody)), false, "&lt;b&gt;say&lt;/b&gt;"},
		{recordedBody, 1_000, false, "<code>recording.max_body</code> says how many are kept"},
		{strings.Repeat("long ", 20_000), 100_000, false, "<code>GET /admin/v1/calls/1/recording</code> has them all"},
		{"", 9, false, "9 bytes that are no text"},
		{"", 0, false, "It had no body."},
		{recordedBody, int64(len(recordedBody)), true, "Content is not shown"},
	} {
		b := open(t, func(cfg *admin.Config) { cfg.Content = !c.hidden })
		b.record(c.body, c.size)
		page := b.form("/console/runs/run_r?turn=t0.critic", b.signIn(adminKey), nil).body
		for _, want := range []string{c.want, "As recorded: what came, and what was sent to the agent.", "x_tangle_runid", "a, b"} {
			if !strings.Contains(page, want) {
				t.Errorf("%.20q of %d bytes: the page lacks %q", c.body, c.size, want)
			}
		}
		if strings.Contains(page, "<b>say") || c.hidden && strings.Contains(page, "say") {
			t.Errorf("content is shown, or is no text: %s", page)
		}
	}
	b := open(t, func(c *admin.Config) { c.Content = true })
	b.settle(b.reserve("alice", "run_o", 1, agentbus.Hold{}), 1, agentbus.Hold{})
	page := b.form("/console/runs/run_o?turn=t1.critic", b.signIn(adminKey), nil).body
	for _, want := range []string{"As the record says", "What it was asked is not recorded"} {
		if !strings.Contains(page, want) {
			t.Errorf("of a call that is not recorded: no %q in %s", want, page)
		}
	}
}
