package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/conversation"
)

// demoVerb shows the main job, offline: a bus and agents that are HTTP servers,
// a conversation whose driver is killed and goes on, a loop that is stopped, a
// retry that is charged once. What it says is read from the store.
type demoVerb struct {
	Question string `arg:"" optional:"" default:"Should we ship on Friday?" help:"What the agents talk about."`
	Keep     bool   `help:"Leave the bus serving when the demo is over, until Ctrl-C."`
	Dir      string `hidden:"" help:"Where the store is kept; else it is removed at the end."`
	// Drive is how the demo starts its driver as a process of its own.
	Drive string `hidden:"" placeholder:"RUN"`
}

// Run plays the demo and prints what became of it. A claim that does not hold
// is a failure.
func (v *demoVerb) Run(ctx context.Context, a *app) error {
	if v.Drive != "" {
		return v.drive(ctx, a)
	}
	if v.Dir == "" {
		dir, err := os.MkdirTemp("", "agentbus-demo-")
		if err != nil {
			return &failure{exit: exitFailed, what: "the demo has no folder to keep its store in", why: err.Error(), next: "let this user write there, or name another place with TMPDIR"}
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
		v.Dir = dir
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := startDemo(ctx, v.Dir)
	if err != nil {
		return err
	}
	defer b.stop()
	d := &demo{app: a, bus: b, dir: v.Dir, question: v.Question, paint: a.colours(a.stdout)}
	if err := d.play(ctx); err != nil {
		return err
	}
	if err := d.tell(ctx); err != nil {
		return err
	}
	if d.lost != nil {
		return &failure{exit: exitFailed, what: "the demo is over, but what it came to could not be printed", why: cause(d.lost), next: "see to where its output goes, and run it again"}
	}
	if v.Keep {
		d.say("\nconsole  %s\n", b.console)
		d.say("still serving on %s until Ctrl-C; try\n  curl %s/v1/chat/completions -H 'Authorization: Bearer %s' -d '{\"model\":\"critic\",\"messages\":[{\"role\":\"user\",\"content\":\"Why?\"}]}'\n",
			b.url, b.url, b.userKey.Reveal()) //nolint:forbidigo // a key made for this demo, shown to who runs it
		<-ctx.Done()
	}
	return nil
}

// A demo is one performance.
type demo struct {
	*app

	bus      *demoBus
	dir      string
	question string
	paint    paint

	talk, loop, retry agentbus.RunID
	killed            bool   // the driver was killed in the middle of a turn
	first, second     answer // of the retried turn
	looped            answer
}

// An answer is what came back over HTTP.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (d *demo) say(format string, args ...any) {
	if d.JSON {
		return
	}
	if _, err := fmt.Fprintf(d.stdout, format, args...); err != nil && !hungUp(err) { // who hung up sees no more
		d.lost = err
	}
}

func (d *demo) play(ctx context.Context) error {
	d.talk, d.loop, d.retry = agentbus.NewRunID(), agentbus.NewRunID(), agentbus.NewRunID()
	d.say("%s\n", d.paint.dim("a bus on "+d.bus.url+", and "+plural(len(d.bus.agents), "agent")+" as HTTP servers of their own: "+names(d.bus.agents)))

	d.say("\n%s\n", d.paint.bold("1. two agents talk, driven by a process of its own, which is killed in the middle of a turn"))
	if err := d.driver(ctx, true); err != nil {
		return err
	}
	d.say("%s\n", d.paint.dim("   kill -9; the run is resumed by another process"))
	if err := d.driver(ctx, false); err != nil {
		return err
	}

	d.say("\n%s\n", d.paint.bold("2. an agent calls itself through the bus, over and over"))
	var err error
	if d.looped, err = d.call(ctx, "loop", d.loop, "once"); err != nil {
		return err
	}
	d.say("   %d %s\n", d.looped.status, strings.TrimSpace(said(d.looped.body)))

	d.say("\n%s\n", d.paint.bold("3. a turn is sent twice, as a client does that lost the answer"))
	for _, to := range []*answer{&d.first, &d.second} {
		if *to, err = d.call(ctx, "researcher", d.retry, d.question); err != nil {
			return err
		}
		d.say("   %d  %s  charged $%s  replay: %s\n", to.status, to.header.Get("X-Request-Id"), to.header.Get("X-Agentbus-Cost-Usd"), dash(to.header.Get("X-Agentbus-Replay")))
	}
	return nil
}

// call sends a turn to an agent of the bus, as a client of the user.
func (d *demo) call(ctx context.Context, agent string, run agentbus.RunID, text string) (answer, error) {
	body, err := json.Marshal(map[string]any{"model": agent, "messages": []map[string]string{{"role": "user", "content": text}}})
	if err != nil {
		return answer{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.bus.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+d.bus.userKey.Reveal()) //nolint:forbidigo // the user's own request (P19)
	r.Header.Set(agentbus.HeaderRunID, string(run))
	r.Header.Set(agentbus.HeaderTurnID, string(run.Turn(0, agentbus.Speaker(agent))))
	resp, err := d.bus.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, got}, err
}

// said returns the words of a chat completion.
func said(body []byte) string {
	var c struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if json.Unmarshal(body, &c) != nil || len(c.Choices) == 0 {
		return string(body)
	}
	return c.Choices[0].Message.Content
}

// killAt is the turn in whose middle the driver is killed.
const killAt = 2

// driver runs the conversation in a process of its own. With kill it is killed
// once turn killAt has begun to speak.
func (d *demo) driver(ctx context.Context, kill bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "demo", "--drive", string(d.talk), "--dir", d.dir, d.question)        //nolint:gosec // this program
	cmd.Env = append(os.Environ(), "AGENTBUS_DEMO_URL="+d.bus.url, "AGENTBUS_DEMO_KEY="+d.bus.userKey.Reveal()) //nolint:forbidigo // handed to the driver that acts for the user (P19)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e driven
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue
		}
		switch {
		case e.Delta && e.Index == killAt && kill:
			d.killed = cmd.Process.Kill() == nil
			close(d.bus.killed)
			kill = false
		case e.Text != "":
			d.say("   [%s] %s\n", harmless(e.Speaker), harmless(e.Text))
		}
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err() // which killed it
	}
	if err != nil && !d.killed {
		return &failure{exit: exitFailed, what: "the driver of the demo failed: " + err.Error(), why: strings.TrimSpace(complaint.String()), next: "report it with this output"}
	}
	return nil
}

// driven is what the driver's process tells: a turn that has begun to speak, or
// one that is done.
type driven struct {
	Index   int    `json:"index"`
	Speaker string `json:"speaker"`
	Delta   bool   `json:"delta,omitempty"`
	Text    string `json:"text,omitempty"`
}

// drive is the driver's process: the journal is in the store of the demo, the
// agents are called through its bus, over HTTP, on the user's bill.
func (v *demoVerb) drive(ctx context.Context, a *app) error {
	s, err := openDemoStore(ctx, v.Dir)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // what was acknowledged is durable already
	busURL, _ := a.env("AGENTBUS_DEMO_URL")
	c, err := demoConversation(busURL+"/v1", a.key("AGENTBUS_DEMO_KEY"))
	if err != nil {
		return err
	}
	tell := json.NewEncoder(a.stdout)
	for e, err := range conversation.Stream(ctx, c, conversation.Options{
		Seed: v.Question, Run: agentbus.RunID(v.Drive), Payer: demoUser, Journal: s.Store(), Runs: s.Runs(), Owner: s.Owner(),
	}) {
		if err != nil {
			return err
		}
		switch {
		case e.Result != nil && !e.Result.Halt.Kind.Final():
			return errors.New(e.Result.Halt.String())
		case e.Type == conversation.EventDelta:
			err = tell.Encode(driven{Index: e.Turn.Index, Speaker: string(e.Turn.Speaker), Delta: true})
		case e.Type == conversation.EventTurnDone:
			err = tell.Encode(driven{Index: e.Turn.Index, Speaker: string(e.Turn.Speaker), Text: e.Turn.Reply.Text})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tell prints the trees, the totals, and what the demo claims, checked against
// the store.
func (d *demo) tell(ctx context.Context) error {
	var traces []*trace
	for _, run := range []agentbus.RunID{d.talk, d.loop, d.retry} {
		t, err := traceOf(ctx, d.bus.server.Store(), run)
		if err != nil {
			return err
		}
		traces = append(traces, t)
		d.say("\n%s", t.text(d.paint))
	}
	claims, err := d.claims(ctx, traces)
	if err != nil {
		return err
	}
	if d.JSON {
		err = printJSON(d.stdout, map[string]any{"claims": claims, "runs": traces, "store": filepath.Join(d.dir, demoStore)})
	}
	d.say("\n")
	var broken []string
	for _, c := range claims {
		mark := "yes"
		if !c.Holds {
			mark = d.paint.red("NO ")
			broken = append(broken, c.Text)
		}
		d.say("%s  %s\n", mark, c.Text)
	}
	d.say("%s\n", d.paint.dim(fmt.Sprintf("done in %.1f s", time.Since(d.bus.began).Seconds())))
	if len(broken) > 0 {
		return &failure{exit: exitFailed, what: "the demo did not come out as it should: " + strings.Join(broken, "; "), next: "report it with this output"}
	}
	return err
}
