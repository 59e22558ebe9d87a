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

const (
	recordedBody = `{"model":"critic","messages":["<b>say</b>"]}`
	chatStream   = `data: {"choices":[{"delta":{"content":"so <b>"}}]}` + "\n\n" + `data: {"choices":[{"index":1,"delta":{"content":"no"}}]}` + "\n\n" +
		`data: {"choices":[{"delta":{"content":"say"}}]}` + "\n\ndata: [DONE]\n\n"
	responseStream = `data: {"type":"response.output_text.delta","delta":"so <b>say"}` + "\n\n" + `data: {"type":"response.output_text.done","text":"so <b>say"}` + "\n\n"
	a2aStream      = `data: {"result":{"task":{}}}` + "\n\n" + `data: {"result":{"artifactUpdate":{"artifact":{"parts":[{"text":"so "},{"text":"<b>"}]}}}}` + "\n\n" +
		`data: {"artifactUpdate":{"artifact":{"parts":[{"text":"say"}]}}}`
)

// record fills the bus with a call of a run, of which a request and an answer are
// recorded, and returns its id.
func (b *bus) record(run agentbus.RunID, body agentbus.RecordedBody, answer *agentbus.RecordedBody) (call int64) {
	b.t.Helper()
	key := agentbus.TurnKey{Payer: "alice", Agent: "critic", Run: run, ID: agentbus.TurnID(run) + ".t0.critic"}
	got, err := b.store.Reserve(b.t.Context(), agentbus.Reservation{
		Key: key.Hash(), Call: agentbus.CallRecord{TurnKey: key, RequestID: "req", Caller: "alice", Owner: "host/1/2", Began: began},
		Recording: &agentbus.Recording{RecordedBody: body, In: http.Header{"X-Tangle-Runid": {"run_r"}, "X_tangle_runid": {"a", "b"}}},
	})
	b.must(err)
	b.must(b.store.Settle(b.t.Context(), agentbus.Settlement{
		ID: got.Call.ID, Attempt: 1, Ended: began, Sent: http.Header{"X-Tangle-Runid": {"run_r"}, "X-Tangle-Forwarded-Depth": {"1"}}, Answer: answer,
	}))
	return got.Call.ID
}

// recorded is a body of which so many bytes came.
func recorded(body string, size int) agentbus.RecordedBody {
	return agentbus.RecordedBody{Body: body, Size: int64(size), Cut: body != "" && size > len(body)}
}

// U11: what a call was asked and answered is told where content may be shown; its headers, side
// by side and with changes marked, in any case.
func TestRecording(t *testing.T) {
	t.Parallel()
	d := openapi.Read(t, "openapi.json")
	for _, content := range []bool{false, true} {
		b := open(t, func(c *admin.Config) { c.Content = content })
		answer := recorded("<i>no</i>", 9)
		id := b.record("run_r", recorded(recordedBody, 1_000), &answer)
		const pattern = "/admin/v1/calls/{id}/recording"
		got := b.get(strings.ReplaceAll(pattern, "{id}", strconv.FormatInt(id, 10)))
		d.Check(t, "GET", pattern, openapi.Answer{Status: got.status, ContentType: got.header.Get("Content-Type"), Body: got.body})
		want := console.Recording{Call: id, Attempt: 1, At: began, Shown: content, Headers: []console.Header{
			{Name: "x-tangle-forwarded-depth", Out: "1", Changed: true}, {Name: "x-tangle-runid", In: "run_r", Out: "run_r"}, {Name: "x_tangle_runid", In: "a, b", Changed: true},
		}}
		want.Size, want.Answer = 1_000, &console.RecordedBody{Size: 9}
		if content {
			want.Body, want.Cut, want.Answer.Body = recordedBody, true, "<i>no</i>"
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

// U11: the inspector shows what a turn was asked and answered, only where content
// may be shown and as text, says where it was cut, tells a stream's words, and says
// which headers it shows.
func TestInspectorOfARecording(t *testing.T) {
	t.Parallel()
	answer := func(body string, size int) *agentbus.RecordedBody { b := recorded(body, size); return &b }
	whole, none := recorded(recordedBody, len(recordedBody)), recorded("", 0)
	shows, hides := open(t, func(c *admin.Config) { c.Content = true }), open(t, nil)
	signed := map[*bus]string{shows: shows.signIn(adminKey), hides: hides.signIn(adminKey)}
	for i, c := range []struct {
		asked  agentbus.RecordedBody
		answer *agentbus.RecordedBody
		hidden bool
		want   string
	}{
		{whole, nil, false, "&lt;b&gt;say&lt;/b&gt;"},
		{recorded(recordedBody, 1_000), nil, false, "<code>recording.max_body</code> says how many are kept"},
		{recorded(strings.Repeat("long ", 20_000), 100_000), nil, false, "/recording</code> has them all"},
		{recorded("", 9), nil, false, "9 bytes that are not kept: no text"},
		{none, nil, false, "It had no body."},
		{whole, nil, true, "Content is not shown"},
		{none, nil, false, "No answer of it is recorded."},
		{none, &whole, false, "&lt;b&gt;say&lt;/b&gt;"},
		{none, answer(recordedBody, 1_000), false, "<code>recording.max_body</code> says how many are kept"},
		{none, answer("", 9), false, "9 bytes that are not kept: no text"},
		{none, &whole, true, "Content is not shown"},
		{none, answer(chatStream, len(chatStream)), false, ">so &lt;b&gt;say</pre>"},
		{none, answer(chatStream, len(chatStream)), false, "<h3>Response as it came</h3><pre class=\"said\" tabindex=\"0\">data: {&#34;choices&#34;"},
		{none, answer(responseStream, 1_000), false, ">so &lt;b&gt;say</pre>"},
		{none, answer(a2aStream, 1_000), false, ">so &lt;b&gt;say</pre>"},
	} {
		b := shows
		if c.hidden {
			b = hides
		}
		run := agentbus.RunID("run_" + strconv.Itoa(i))
		b.record(run, c.asked, c.answer)
		page := b.form("/console/runs/"+string(run)+"?turn=t0.critic", signed[b], nil).body
		for _, want := range []string{c.want, "As recorded: what came, and what was sent to the agent.", "x_tangle_runid", "a, b"} {
			if !strings.Contains(page, want) {
				t.Errorf("%.20q of %d bytes, and %v: the page lacks %q", c.asked.Body, c.asked.Size, c.answer, want)
			}
		}
		if strings.Contains(page, "<b>say") || c.hidden && strings.Contains(page, "say") {
			t.Errorf("content is shown, or is no text: %s", page)
		}
	}
	shows.settle(shows.reserve("alice", "run_o", 1, agentbus.Hold{}), 1, agentbus.Hold{})
	page := shows.form("/console/runs/run_o?turn=t1.critic", signed[shows], nil).body
	for _, want := range []string{"As the record says", "What it was asked is not recorded", "What it answered is not recorded"} {
		if !strings.Contains(page, want) {
			t.Errorf("of a call that is not recorded: no %q in %s", want, page)
		}
	}
}
