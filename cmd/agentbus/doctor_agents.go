package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openai"
	"github.com/agentbus/agentbus/server/config"
)

// atOnce is how many agents are looked at at once.
const atOnce = 8

// agents looks at every agent, by what its kind allows without being called.
func (d *doctor) agents(ctx context.Context) {
	names := slices.Sorted(maps.Keys(d.c.Agents))
	looked := make([]doctor, len(names)) // each writes its own findings down
	free := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, name := range names {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			one := doctor{app: d.app, verb: d.verb, c: d.c, whole: d.whole, client: &http.Client{
				Timeout: d.client.Timeout, CheckRedirect: d.client.CheckRedirect, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
			}}
			ctx, cancel := context.WithTimeout(ctx, d.verb.Timeout)
			defer cancel()
			one.agent(ctx, name, d.c.Agents[name])
			looked[i] = one
		})
	}
	all.Wait()
	for _, one := range looked {
		d.Findings = append(d.Findings, one.Findings...)
		d.Faults += one.Faults
		d.Warnings += one.Warnings
	}
}

func (d *doctor) agent(ctx context.Context, name string, a config.Agent) {
	urls := a.URLs
	if a.URL != "" {
		urls = []string{a.URL}
	}
	switch a.Kind {
	case config.KindOpenAI:
		for _, at := range urls {
			d.openaiAgent(ctx, name, a, at)
		}
	case config.KindA2A:
		for _, at := range urls {
			d.a2aAgent(ctx, name, at)
		}
	case config.KindExec:
		d.execAgent(name, a)
	case config.KindBuiltin, config.KindConversation:
		d.find(checkAgents, name, levelOK, string(a.Kind)+" "+cmp.Or(a.Builtin, a.Conversation)+", in the bus itself", "")
	}
}

// openaiAgent asks an agent for its models, with its key where that may be sent:
// who answers is there, and a key that is refused shows.
func (d *doctor) openaiAgent(ctx context.Context, name string, a config.Agent, base string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/models", http.NoBody)
	if err != nil {
		d.find(checkAgents, name, levelFault, base+" is no URL", "mend agents."+name+".url")
		return
	}
	secret := r.URL.Scheme == "https" || httpx.Loopback(r.URL.Hostname()) || a.AllowPlaintext
	if secret {
		for k, v := range a.Headers {
			r.Header.Set(k, v.Reveal()) //nolint:forbidigo // written into a request to the agent it was configured for (P19)
		}
	}
	keyed := secret && !a.Authorization.IsZero()
	if keyed {
		r.Header.Set("Authorization", a.Authorization.Reveal()) //nolint:forbidigo // a request is written (P19)
	}
	resp, body, err := d.send(r) //nolint:bodyclose // send has read and closed it
	if err != nil {
		d.find(checkAgents, name, levelFault, "no answer from "+base+": "+err.Error(), "start the agent, or mend agents."+name+".url; --timeout gives it more time")
		return
	}
	d.peerCertificate(name, resp)
	d.judgeModels(name, a, base, keyed, resp, body)
}

func (d *doctor) judgeModels(name string, a config.Agent, base string, keyed bool, resp *http.Response, body []byte) {
	switch code := resp.StatusCode; {
	case code/100 == 2 && a.Model != "" && !lists(body, a.Model):
		d.find(checkAgents, name, levelWarning, base+" answers, and does not list its model "+a.Model, "mend agents."+name+".model, unless it takes models that it does not list")
	case code/100 == 2 && !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) && !bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")):
		d.find(checkAgents, name, levelWarning, base+" answers, but not as an API does: what it says is no JSON", "mend agents."+name+".url: it is the base of an OpenAI-compatible API, such as http://host/v1")
	case code/100 == 2:
		d.find(checkAgents, name, levelOK, base+" answers", "")
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && keyed:
		d.find(checkAgents, name, levelFault, base+" refuses its key: "+resp.Status, "put the right key where agents."+name+".api_key_env or api_key_file says")
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		level, next := levelFault, "give it one: agents."+name+".api_key_env"
		if a.Auth == config.AuthPassthrough || !d.whole {
			level, next = levelNote, "it gets that of the caller, or that of a variable which is not set here"
		}
		d.find(checkAgents, name, level, base+" answers, and wants a key: "+resp.Status, next)
	case code/100 == 3:
		d.find(checkAgents, name, levelWarning, base+" redirects, which calls do not follow: "+resp.Status, "let agents."+name+".url be where it redirects to")
	case code >= http.StatusInternalServerError:
		d.find(checkAgents, name, levelWarning, base+" fails: "+resp.Status, "see the log of the agent")
	default:
		d.find(checkAgents, name, levelNote, base+" is there, and lists no models: "+resp.Status, "see that agents."+name+".url ends where its API begins, such as http://host/v1; agentbus doctor --ask finds out whether it answers")
	}
}

// lists reports whether a list of models holds one; one that cannot be read may.
func lists(body []byte, model string) bool {
	var l struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &l) != nil || l.Data == nil {
		return true
	}
	for _, m := range l.Data {
		if m.ID == model {
			return true
		}
	}
	return false
}

func (d *doctor) peerCertificate(name string, resp *http.Response) {
	if resp.TLS == nil || len(resp.TLS.PeerCertificates) == 0 {
		return
	}
	if until := resp.TLS.PeerCertificates[0].NotAfter; time.Now().Add(soon / 3).After(until) {
		d.find(checkAgents, name, levelWarning, "its certificate expires on "+until.UTC().Format(time.DateOnly), "tell its operator")
	}
}

// a2aAgent reads the card of an agent.
func (d *doctor) a2aAgent(ctx context.Context, name, base string) {
	u, err := url.Parse(base)
	if err != nil {
		d.find(checkAgents, name, levelFault, base+" is no URL", "mend agents."+name+".url")
		return
	}
	dialer, err := a2a.NewDialer(a2a.DialerConfig{AllowHosts: append(slices.Clone(d.c.Resolver.AllowHosts), u.Host)}) // the operator has named it
	if err != nil {
		d.find(checkAgents, name, levelFault, "its card cannot be asked for: "+err.Error(), "mend agents."+name+".url")
		return
	}
	report, err := examineAt(ctx, dialer, u)
	if err != nil {
		p := describe(err)
		d.find(checkAgents, name, levelFault, "no card: "+strings.TrimSuffix(p.What+": "+p.Why, ": "), cmp.Or(p.Next, "start the agent, or mend agents."+name+".url"))
		return
	}
	if !report.Usable {
		d.find(checkAgents, name, levelFault, "its card says what this bus cannot do: "+blocking(report), "see agentbus agents check "+base)
		return
	}
	what := fmt.Sprintf("its card at %s is of A2A %s", report.URL, report.Shape)
	if n := len(report.Findings); n > 0 {
		d.find(checkAgents, name, levelNote, what+", with "+plural(n, "note"), "see agentbus agents check "+base)
		return
	}
	d.find(checkAgents, name, levelOK, what, "")
}

// execAgent looks whether the program is there.
func (d *doctor) execAgent(name string, a config.Agent) {
	path, err := exec.LookPath(a.Command[0])
	if err != nil {
		d.find(checkAgents, name, levelFault, "the program "+a.Command[0]+" is not here", "install it, put its folder into PATH, or mend agents."+name+".command")
		return
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if a.Dir != "" {
		if info, err := os.Stat(a.Dir); err != nil || !info.IsDir() {
			d.find(checkAgents, name, levelFault, "there is no directory "+a.Dir, "make it, or mend agents."+name+".dir")
			return
		}
	}
	d.find(checkAgents, name, levelOK, "the program is "+path, "")
}

// ask calls every agent that has no fault, through a bus in memory.
func (d *doctor) ask(ctx context.Context, key agentbus.Credential) {
	switch {
	case !d.whole:
		d.find(checkAgents, "", levelNote, "nobody was asked: the configuration has faults", "mend them first")
		return
	case d.opened == nil:
		d.find(checkAgents, "", levelNote, "nobody was asked: there is no store to write that down in", "agentbus migrate makes it, or agentbus serve")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.c.Agents)) {
		if !slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Check == checkAgents && f.Subject == name && f.Level == levelFault }) {
			d.askOne(ctx, key, name)
		}
	}
}

func (d *doctor) askOne(ctx context.Context, key agentbus.Credential, name string) {
	ctx, cancel := context.WithTimeout(ctx, d.verb.Timeout)
	defer cancel()
	began := time.Now()
	b, err := openai.New(openai.Config{URL: "http://localhost/v1", Model: "agent/" + name, Key: key, Transport: httpx.Memory(d.opened.Handler())})
	var reply agentbus.Reply
	if err == nil {
		reply, err = agentbus.Collect(b.Call(ctx, &agentbus.Call{Agent: name, Messages: []agentbus.Message{{Role: agentbus.RoleUser, Content: "Answer with the word ok."}}}))
	}
	if err != nil {
		p := describe(err)
		d.find(checkAgents, name, levelFault, "it was asked, and failed: "+strings.TrimSpace(string(p.Code)+" "+p.What), "see the log of the agent; --timeout gives it more time")
		return
	}
	d.find(checkAgents, name, levelOK, fmt.Sprintf("it answered within %s, with %d characters", seconds(time.Since(began).Seconds()), len([]rune(reply.Text))), "")
}
