package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/internal/measure"
	"github.com/agentbus/agentbus/openai"
)

// benchVerb puts load on a bus and on an agent, and says what the bus costs.
type benchVerb struct {
	Agent    string        `arg:"" optional:"" complete:"agent" help:"The agent of the bus of --server to call. Without: a bus of this program's own, beside the configured store, and an agent that answers at once."`
	Server   string        `placeholder:"URL" help:"The running bus, such as http://127.0.0.1:8080; AGENTBUS_TOKEN is a key of it."`
	Direct   string        `placeholder:"URL#MODEL" help:"The same agent without the bus, to compare with; its key is in the variable of --key-env."`
	KeyEnv   string        `name:"key-env" default:"OPENAI_API_KEY" placeholder:"NAME" help:"Variable with the key of --direct; else OPENAI_API_KEY."`
	Calls    int           `default:"5000" help:"At most this many calls to each."`
	Duration time.Duration `default:"10s" help:"At most this long, all in all; what is under way then is waited for."`
	Clients  int           `short:"c" default:"16" help:"Callers at once."`
	Text     string        `default:"ping" help:"What the agent is told."`
	Remote   bool          `help:"Allow load on another machine. Its agents may cost money."`
}

// Bounds of what one run may do.
const (
	mostCalls    = 1_000_000
	mostClients  = 1024
	mostDuration = time.Hour
	benchRounds  = 5
)

// A benched is what was measured.
type benched struct {
	Clients int       `json:"clients"`
	Rounds  int       `json:"rounds"`
	Took    float64   `json:"seconds"`
	Targets []*target `json:"targets"`
	// Of the bus against the agent itself, a figure a round; empty where one of
	// them was not measured.
	Rate  measure.Series `json:"rate_ratio,omitempty"`
	Added measure.Series `json:"added_p50_ms,omitempty"`
	Syncs measure.Series `json:"added_p50_fsyncs,omitempty"` // of the disk of a bus of our own
}

// Run measures, and prints ratios of what was measured in the same round.
func (v *benchVerb) Run(ctx context.Context, a *app) error {
	if err := v.check(); err != nil {
		return err
	}
	l, err := v.lab(ctx, a)
	if err != nil {
		return err
	}
	defer l.close()
	defer l.transport.CloseIdleConnections()
	b, err := v.measure(ctx, l)
	if err != nil {
		return err
	}
	if err := a.answer(b, b.text()); err != nil {
		return err
	}
	return b.failed()
}

func (v *benchVerb) check() error {
	switch {
	case v.Calls < 1 || v.Calls > mostCalls || v.Clients < 1 || v.Clients > mostClients || v.Duration <= 0 || v.Duration > mostDuration:
		return &failure{exit: exitUsage, what: fmt.Sprintf("--calls goes from 1 to %d, --clients from 1 to %d, and --duration up to %s", mostCalls, mostClients, mostDuration), next: "leave them out for the defaults"}
	case (v.Agent == "") != (v.Server == ""):
		return &failure{exit: exitUsage, what: "an agent and --server belong together", next: "agentbus bench --server http://127.0.0.1:8080 AGENT, or agentbus bench for a bus of its own"}
	}
	return nil
}

// A lab is what is measured.
type lab struct {
	bus, direct agentbus.Backend // nil: not measured
	where       string
	dir         string // of the store of a bus of our own; "" for another's
	transport   *http.Transport
	close       func()
}

// lab prepares what is to be measured.
func (v *benchVerb) lab(ctx context.Context, a *app) (l *lab, err error) {
	l = &lab{close: func() {}, transport: &http.Transport{MaxIdleConns: 2 * v.Clients, MaxIdleConnsPerHost: v.Clients, DisableCompression: true}} // no proxy: the key is for the bus
	direct, model, key := v.Direct, "", a.key(v.KeyEnv)
	if v.Direct != "" {
		var ok bool
		if direct, model, ok = strings.Cut(v.Direct, "#"); !ok || model == "" {
			return nil, &failure{exit: exitUsage, what: "--direct is not URL#MODEL", next: "such as --direct http://127.0.0.1:9001/v1#gpt-x"}
		}
	}
	if v.Server == "" && v.Direct == "" {
		return l, v.ownBus(ctx, a, l)
	}
	if v.Server != "" {
		l.where = v.Server + ", agent " + v.Agent
		base := strings.TrimSuffix(strings.TrimRight(v.Server, "/"), "/v1") + "/v1"
		if l.bus, err = v.backend(l, base, v.Agent, a.token()); err != nil {
			return nil, err
		}
	}
	if direct != "" {
		l.where = strings.TrimPrefix(l.where+"; "+direct, "; ")
		l.direct, err = v.backend(l, direct, model, key)
	}
	return l, err
}

// backend is one that the load is sent to.
func (v *benchVerb) backend(l *lab, base, model string, key agentbus.Credential) (agentbus.Backend, error) {
	u, err := url.Parse(base)
	if err == nil && !httpx.Loopback(u.Hostname()) && !v.Remote {
		return nil, &failure{exit: exitUsage, what: harmless(u.Hostname()) + " is another machine", why: "load on it is somebody else's, and its agents may cost money", next: "add --remote if that is meant"}
	}
	b, err := openai.New(openai.Config{URL: base, Model: model, Key: key, Transport: l.transport})
	if err != nil {
		return nil, &failure{exit: exitUsage, what: "this cannot be called", why: err.Error(), next: "write it as http://127.0.0.1:8080"}
	}
	return b, nil
}

// measure loads the targets in turn, so that what else the machine does falls on
// all of them alike.
func (v *benchVerb) measure(ctx context.Context, l *lab) (*benched, error) {
	b := &benched{Clients: v.Clients, Rounds: benchRounds}
	direct, bus, again := &target{Name: "agent", backend: l.direct}, &target{Name: "bus", backend: l.bus}, &target{Name: "duplicates", backend: l.bus, repeat: true}
	for _, t := range []*target{direct, bus, again} {
		if t.backend != nil {
			b.Targets = append(b.Targets, t)
		}
	}
	began := time.Now()
	round := load{clients: v.Clients, calls: max(v.Calls/benchRounds, 1), each: v.Duration / time.Duration(benchRounds*len(b.Targets)+1), text: v.Text}
	for _, t := range b.Targets {
		warm := round
		warm.each /= time.Duration(benchRounds)
		(&target{backend: t.backend, repeat: t.repeat}).load(ctx, warm)
	}
	for range benchRounds {
		for _, t := range b.Targets {
			t.load(ctx, round)
		}
		if err := b.compare(ctx, l, direct, bus); err != nil {
			return nil, err
		}
	}
	b.Took = time.Since(began).Seconds()
	for _, t := range b.Targets {
		t.sum()
	}
	return b, ctx.Err()
}

// compare keeps the ratios of the round that was measured last.
func (b *benched) compare(ctx context.Context, l *lab, direct, bus *target) error {
	if direct.backend == nil || bus.backend == nil || len(direct.last) == 0 || len(bus.last) == 0 {
		return nil
	}
	n := len(direct.rates) - 1
	b.Rate = append(b.Rate, bus.rates[n]/direct.rates[n])
	added := bus.last.Median() - direct.last.Median()
	b.Added = append(b.Added, added*1e3)
	if l.dir == "" {
		return nil
	}
	took, err := measure.Syncs(ctx, l.dir, 50*time.Millisecond)
	if err == nil {
		b.Syncs = append(b.Syncs, added/took.Median())
	}
	return err
}

// failed says that calls failed, by the code of most of them.
func (b *benched) failed() error {
	worst, most, all := agentbus.Code(""), 0, 0
	for _, t := range b.Targets {
		for code, n := range t.Failed {
			if all += n; n > most {
				worst, most = code, n
			}
		}
	}
	if all == 0 {
		return nil
	}
	exit := exits[worst]
	if exit == exitOK {
		exit = exitFailed
	}
	return &failure{exit: exit, what: plural(all, "call") + " failed, most of them with " + string(worst), next: "see docs/errors.md for the code, and agentbus doctor for the bus"}
}
