package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/gateway"
)

// recordsRequests records most bytes of each request.
func recordsRequests(most int) func(*gateway.Config) {
	return func(c *gateway.Config) {
		c.Recording = gateway.Recording{MaxBody: most, Redactor: func(credentials ...agentbus.Credential) gateway.Redactor {
			var secrets []eventlog.Secret
			for _, c := range credentials {
				secrets = append(secrets, eventlog.Secret{ID: "call", Value: c})
			}
			return eventlog.NewRedactor(secrets...)
		}}
	}
}

// recording returns what is recorded of the one call of a run.
func (b *bus) recording(run string) agentbus.Recording {
	b.t.Helper()
	calls := b.calls(run)
	if len(calls) != 1 {
		b.t.Fatalf("%s has %d calls", run, len(calls))
	}
	rec, found, err := b.store.Recording(b.t.Context(), calls[0].ID)
	if err != nil || !found {
		b.t.Errorf("nothing is recorded of %s: %v", run, err)
	}
	return rec
}

// U11: the body of a request is kept as it came, whatever dialect it is in and
// whatever became of the call, and without the credentials that stand in it.
func TestRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	good := newAgent(t, "good", nil)
	good.Authorization = agentbus.NewCredential("Bearer " + agentKey)
	streams := newAgent(t, "streams", streamWith(stream))
	bad := newAgent(t, "bad", answerWith(http.StatusInternalServerError, `{}`))
	critic := newA2A(t, "critic", answerWith(http.StatusOK, rpcDone))
	b := newBus(t, recordsRequests(301), good, streams, bad, critic)
	leaky := `{"model":"good","messages":[{"role":"user","content":"é my key is ` + aliceKey + `, or sk\u002dCANARY\u002dalice, its ` + agentKey + `, and ghp_abcdefghijklmnopqrst1"}]}`
	long := `{"model":"good","messages":[{"role":"user","content":"` + strings.Repeat("é", 400) + `"}]}`
	for run, c := range map[string]struct {
		path, body, want string
		status           int
		headers          []string
	}{
		"chat":    {path: chatRoute, body: ask("good"), want: ask("good")},
		"stream":  {path: chatRoute, body: askStream("streams"), want: askStream("streams")},
		"failed":  {path: chatRoute, body: ask("bad"), want: ask("bad"), status: http.StatusInternalServerError},
		"other":   {path: "/agents/good/v2/x", body: "plain & simple", want: "plain & simple"},
		"a2a":     {path: "/a2a/critic", body: sendHi, want: sendHi},
		"leaky":   {path: chatRoute, body: leaky, want: `{"messages":[{"content":"é my key is [redacted], or [REDACTED:call], its [redacted], and [REDACTED:github-token]","role":"user"}],"model":"good"}`},
		"long":    {path: chatRoute, body: long, want: long[:300]},
		"bytes":   {path: "/agents/good/v2/x", body: "\xff\xfe" + aliceKey},
		"encoded": {path: "/agents/good/v2/x", body: "gzipped " + aliceKey, headers: []string{"Content-Encoding: gzip"}},
	} {
		got := b.send(http.MethodPost, c.path, c.body, append(append([]string{asAlice, "Content-Type: application/json"}, turn(run, run+".t0.x")...), c.headers...)...)
		if got.status != max(c.status, http.StatusOK) {
			t.Errorf("%s: %v", run, got)
		}
		rec := b.recording(run)
		if rec.Body != c.want || rec.Size != int64(len(c.body)) || rec.Cut != (run == "long") || rec.Attempt != 1 || rec.Out.Get("X-Tangle-Forwarded-Depth") != "1" {
			t.Errorf("%s: %+v", run, rec)
		}
	}
	b.clean()
}

// U11: the headers of the protocol are kept as they came and as they went on, the
// twins that end here (P5) among them; credentials are not.
func TestHeadersAreRecorded(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a", nil)
	b := newBus(t, recordsRequests(300), a)
	got := b.send(http.MethodPost, chatRoute, ask("a"), append(turn("r", "r.t1.x"), asRelay, forAlice, "x-tangle-forwarded-depth: 2", "x_tangle_runid: other",
		"x-tangle-speaker: zoe", "X-Extra: 1")...)
	if got.status != http.StatusOK {
		t.Fatal(got)
	}
	sent, rec := a.next(t).header, b.recording("r")
	in := http.Header{
		"X-Tangle-Runid": {"r"}, "X-Tangle-Turnid": {"r.t1.x"}, "X-Tangle-Forwarded-Depth": {"2"}, "X_tangle_runid": {"other"}, "X-Tangle-Speaker": {"zoe"},
		"X-Tangle-Forwarded-Authorization": {"[redacted]"},
	}
	if diff := cmp.Diff(in, rec.In); diff != "" {
		t.Errorf("in (-want +got):\n%s", diff)
	}
	for name := range sent {
		if !agentbus.IsProtocolHeader(name) {
			delete(sent, name)
		}
	}
	sent["X-Tangle-Forwarded-Authorization"] = []string{"[redacted]"}
	if diff := cmp.Diff(sent, rec.Out); diff != "" {
		t.Errorf("out (-want +got):\n%s", diff)
	}
	if sent.Get("X-Tangle-Forwarded-Depth") != "3" || len(sent["X_tangle_runid"]) > 0 {
		t.Errorf("sent %v", sent)
	}
	b.clean()
}

// U11: nothing is kept of refusals, of duplicates and where nobody asked for it.
func TestWhatIsNotRecorded(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "a", nil)
	b := newBus(t, nil, a)
	b.call("a", turn("off", "off.t0.x")...)
	b.one("off", agentbus.CallSettled)
	on := busOver(t, b.store, b.path, recordsRequests(300), a)
	on.call("a", turn("off", "off.t0.x")...) // a duplicate
	on.call("a", append(turn("deep", "deep.t0.x"), "x-tangle-forwarded-depth: 4")...)
	for run, state := range map[string]agentbus.CallState{"off": agentbus.CallSettled, "deep": agentbus.CallRefused} {
		if rec, found, err := b.store.Recording(t.Context(), on.one(run, state).ID); found || err != nil {
			t.Errorf("%s: %+v, %v", run, rec, err)
		}
	}
	if _, err := gateway.New(gateway.Config{Recording: gateway.Recording{MaxBody: 1}}); err == nil || !strings.Contains(err.Error(), "Redactor") {
		t.Errorf("without a redactor: %v", err)
	}
}
