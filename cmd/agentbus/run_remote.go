package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/openwop"
	"github.com/agentbus/agentbus/server"
)

// A wire speaks to the public listener of a running bus as who pays for a run.
type wire struct {
	url           string // without a slash at its end
	authorization agentbus.Credential
	http          *http.Client
	patience      time.Duration // how long a run is followed that the bus does not answer for
}

const (
	pollSeconds = 20               // how long the bus may wait for an event before it answers
	restarting  = 60 * time.Second // patience that a bus needs to drain and start again
)

// onServer begins the conversation at a bus that serves, which drives it, and
// shows it until it halts, as if it were driven here.
func (v *runVerb) onServer(ctx context.Context, a *app) error {
	st, err := v.start(a)
	if err != nil {
		return err
	}
	w, err := v.wire(a, &st)
	if err != nil {
		return err
	}
	run, err := w.begin(ctx, &st)
	if err != nil {
		return err
	}
	if v.Detach {
		return a.answer(struct {
			Run agentbus.RunID `json:"run"`
		}{run}, string(run)+"\n")
	}
	halt, err := w.shown(ctx, a, run, st.Conversation)
	if err != nil {
		return err
	}
	if a.JSON {
		var snapshot json.RawMessage
		if err := w.send(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape(string(run)), nil, &snapshot); err != nil {
			return err
		}
		if err := printJSON(a.stdout, snapshot); err != nil {
			return err
		}
	}
	return halted(ctx, &conversation.Result{Run: run, Halt: *halt}, "", "where that bus has its store: ")
}

// wire returns the bus of --server, for a run that it can be asked for.
func (v *runVerb) wire(a *app, st *server.Start) (*wire, error) {
	w := &wire{url: strings.TrimRight(v.Server, "/"), authorization: a.token(), patience: restarting, http: &http.Client{
		Transport:     &http.Transport{}, // no proxy: the token is for the bus (P24)
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	u, err := url.Parse(w.url)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, &failure{exit: exitUsage, what: "--server is no URL of a bus", next: "write it as http://127.0.0.1:8080"}
	case st.Peers != nil || st.Budget != nil || st.MaxTurns > 0:
		return nil, &failure{exit: exitUsage, what: "--agent, --max-turns and --max-usd are for runs that are driven here", next: "set them in the conversation of the bus, or leave --server out"}
	case st.Authorization.IsZero():
		return nil, &failure{exit: exitUsage, what: "there is no key to call the bus with", next: "set AGENTBUS_TOKEN; agentbus keys create NAME makes one"}
	}
	return w, nil
}

// begin asks for the run.
func (w *wire) begin(ctx context.Context, st *server.Start) (agentbus.RunID, error) {
	options := map[string]any{"onHalt": "pause"} // as of a run that is driven here
	if st.Timeout > 0 {
		options["runTimeoutMs"] = max(st.Timeout.Milliseconds(), 1)
	}
	var begun struct {
		Run agentbus.RunID `json:"runId"`
	}
	err := w.send(ctx, http.MethodPost, "/v1/runs", map[string]any{
		"workflowId": st.Conversation, "inputs": map[string]string{"seed": st.Seed}, "configurable": options,
	}, &begun)
	return begun.Run, err
}

// shown shows a run until it halts: a live tree on a terminal, a line an event
// elsewhere.
func (w *wire) shown(ctx context.Context, a *app, run agentbus.RunID, name string) (*agentbus.Halt, error) {
	const left = "agentbus: it goes on at the bus; end it there with: agentbus stop "
	l := a.live()
	if l == nil {
		defer context.AfterFunc(ctx, func() {
			fmt.Fprintf(a.stderr, "\n%s%s\n", left, operand(run)) //nolint:errcheck // nobody is left to tell
		})()
		return w.follow(ctx, run, func(d *eventlog.Doc) error { return a.told(d, name) })
	}
	tree := &watch{live: l}
	l.calls = tree.calls
	defer context.AfterFunc(ctx, func() { l.note(left + operand(run)) })()
	stop := w.watching(ctx, tree, run)
	end := l.turning()
	halt, err := w.follow(ctx, run, func(d *eventlog.Doc) error { return tree.news(newsOf(d, name)) })
	stop()
	end()
	if halt != nil {
		tree.halted(run, halt)
	}
	return halt, err
}

// watching asks the bus again and again which calls are being made in a run, until
// stop is called. A bus that does not tell shows the turns alone.
func (w *wire) watching(ctx context.Context, tree *watch, run agentbus.RunID) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			var c openwop.Calling
			err := w.send(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape(string(run))+"/vendor.agentbus.calls", nil, &c)
			if err != nil && !passing(err) {
				return
			}
			tree.saw(run, &c)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// follow gives the events of a run to show until one tells that it halted. A bus
// that is started again meanwhile goes on with the run, and is waited for (R19).
func (w *wire) follow(ctx context.Context, run agentbus.RunID, show func(*eventlog.Doc) error) (*agentbus.Halt, error) {
	after := agentbus.Position(-1)
	for {
		query := url.Values{"timeout": {strconv.Itoa(pollSeconds)}}
		if after >= 0 {
			query.Set("lastSequence", strconv.FormatInt(int64(after), 10))
		}
		var page struct {
			Events []eventlog.Doc `json:"events"`
		}
		if err := w.ask(ctx, "/v1/runs/"+url.PathEscape(string(run))+"/events/poll?"+query.Encode(), &page); err != nil {
			if f, ok := errors.AsType[*failure](err); ok && f.passing {
				f.next = "run " + string(run) + " goes on there once it serves again"
			}
			return nil, err
		}
		for i := range page.Events {
			d := &page.Events[i]
			after = d.Sequence
			if err := show(d); err != nil {
				return nil, err
			}
			if h := haltOf(d); h != nil {
				return h, nil
			}
		}
	}
}

// told prints an event of a run on another bus: what was said, and what is printed
// of a run that is followed here.
func (a *app) told(d *eventlog.Doc, name string) error {
	if a.JSON {
		return nil
	}
	var says struct {
		Turn agentbus.ConversationTurn `json:"turn"`
	}
	_ = json.Unmarshal(d.Payload, &says) // what cannot be read says nothing
	if d.Type == agentbus.EventRunStarted {
		_, err := fmt.Fprintf(a.stdout, "run %s\n", d.RunID)
		return err
	}
	if text, said := says.Turn.Content.(string); said && d.Type == agentbus.EventConversationExchanged {
		_, err := fmt.Fprintf(a.stdout, "%s  %s\n", a.colours(a.stdout).bold(harmless(d.NodeID)), harmless(text))
		return err
	}
	return a.tell(newsOf(d, name))
}

// newsOf is an event of the conversation called name as the wire has it.
func newsOf(d *eventlog.Doc, name string) *news {
	return &news{Event: agentbus.Event{
		Position: d.Sequence, ID: d.EventID, At: d.Timestamp, Type: d.Type, Execution: d.RunID, Run: agentbus.RunID(d.RunID), Turn: d.TurnID, Node: d.NodeID, Data: d.Payload,
	}, execution: &agentbus.Execution{Conversation: name}}
}

// haltOf returns the halt that an event tells; nil: the run goes on.
func haltOf(d *eventlog.Doc) *agentbus.Halt {
	if !agentbus.Terminal(d.Type) && d.Type != agentbus.EventRunPaused && d.Type != agentbus.EventRunWaiting {
		return nil
	}
	var says told
	if json.Unmarshal(d.Payload, &says) != nil || says.Bus.Halt == nil {
		return &agentbus.Halt{Kind: agentbus.HaltDone}
	}
	return says.Bus.Halt
}

// ask gets an answer from a bus that may be out of reach for a while.
func (w *wire) ask(ctx context.Context, path string, out any) error {
	for began := time.Now(); ; {
		err := w.send(ctx, http.MethodGet, path, nil, out)
		if !passing(err) || time.Since(began) >= w.patience {
			return err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// passing reports whether the same may go well in a while.
func passing(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.passing
}

// send sends a request, with a body unless in is nil, and reads the answer into
// out.
func (w *wire) send(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, &body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", w.authorization.Reveal()) //nolint:forbidigo // a request is written
	resp, err := w.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &failure{exit: exitFailed, passing: true, what: "no bus answers at " + w.url, why: unreachable(err), next: "start it with agentbus serve, or name another with --server"}
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &failure{exit: exitFailed, passing: true, what: "the answer of " + w.url + " broke off", why: cause(err), next: "try again"}
	}
	if resp.StatusCode/100 == 2 {
		return json.Unmarshal(answer, out)
	}
	var refused struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &refused) != nil || refused.Error == "" {
		if adminAt(ctx, getPlainly, w.url) {
			return notPublic()
		}
		return &failure{exit: exitFailed, what: fmt.Sprintf("%s answered %d", w.url, resp.StatusCode), next: "is this the public listener of a bus?"}
	}
	exit, next := exitFailed, "see GET /v1/openapi.json there"
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		refused.Message = "the bus does not know this key" // one was sent: wire sees to it
		exit, next = exitRefused, "set AGENTBUS_TOKEN to a key of that bus; agentbus keys create NAME makes one"
	case resp.StatusCode == http.StatusForbidden:
		exit = exitRefused
	case refused.Error == "workflow_not_found":
		exit, next = exitUsage, "name one of the conversations of that bus; the configuration here does not count"
	}
	return &failure{exit: exit, passing: resp.StatusCode == http.StatusServiceUnavailable, what: harmless(refused.Message), why: harmless(refused.Error), next: next}
}
