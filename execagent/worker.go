package execagent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
)

// A worker is a process that serves the turns of one conversation of one payer,
// one after the other (B4). It reads a line for each, which is a request, and
// writes lines that are an [event] each.
type worker struct {
	key string
	p   *process
	at  *room

	served int // turns of the process

	// Under the lock of the pool:
	idle  *time.Timer   // ends it when it fires; nil while somebody has the worker
	ended bool          // nobody gets it any more
	gone  chan struct{} // closed once nothing of it is left
}

// A request asks a worker for a turn.
type request struct {
	Turn     agentbus.TurnID    `json:"turn"`
	Prompt   string             `json:"prompt"`
	Messages []agentbus.Message `json:"messages"`
	// Env are the variables of the turn that a process of its own would have
	// (B2). The token in it is worthless once the turn is over.
	Env map[string]string `json:"env"`
}

// An event is what a worker says: a piece of its answer, or that the answer is
// done, or that there is none. One that names another turn than the one that is
// served is passed over.
type event struct {
	Turn      agentbus.TurnID `json:"turn"`
	Text      string          `json:"text"`
	Reasoning string          `json:"reasoning"`
	Done      bool            `json:"done"`
	Error     string          `json:"error"`
	Model     string          `json:"model"`
	Usage     *struct {
		InputTokens  int64   `json:"input_tokens"`
		CachedTokens int64   `json:"cached_tokens"`
		OutputTokens int64   `json:"output_tokens"`
		CostUSD      float64 `json:"cost_usd"`
	} `json:"usage"`
}

// close ends the process of a worker and waits until nothing of it is left.
func (w *worker) close() {
	if w.p != nil {
		w.p.stop()
		w.p.wait()
		w.at.leave()
		w.p = nil
	}
}

// Close ends the workers of a: those that are idle now, others once their turn is
// over. It waits for the former. The agent still answers; workers that it starts
// from now on end with their turn.
func (a *Agent) Close() { a.pool.close() }

// work has a turn served by the worker of its conversation.
func (a *Agent) work(ctx context.Context, t *turn) (stderr string, err error) {
	line, err := json.Marshal(&request{t.call.Lineage.Turn, t.text, t.call.Messages, t.env})
	if err != nil {
		return "", err
	}
	w, err := a.pool.take(ctx, t.key)
	if err != nil {
		return "", err
	}
	good := false
	defer func() { a.pool.give(w, good) }()
	for attempt := range 2 { // a worker can have ended since its last turn
		if w.p != nil && w.p.over() {
			w.close()
		}
		if w.p == nil {
			if err := a.begin(w); err != nil {
				return "", a.cannotStart(err)
			}
		}
		if err = a.exchange(ctx, w, line, t); err == nil || !w.p.unread || attempt > 0 || ctx.Err() != nil {
			break
		}
		w.close() // nothing of the request was sent
	}
	good = err == nil && ctx.Err() == nil
	return w.p.stderr.text(t.hide), err
}

// begin starts the process of a worker.
func (a *Agent) begin(w *worker) error {
	at, err := a.rooms.enter(w.key)
	if err != nil {
		return err
	}
	p, err := a.start(a.config.Command, a.inherited(), at.dir)
	if err != nil {
		at.leave()
		return err
	}
	w.p, w.at, w.served = p, at, 0
	return nil
}

// exchange asks a worker for one turn. What it has said since the last one
// belongs to none.
func (a *Agent) exchange(ctx context.Context, w *worker, line []byte, t *turn) error {
	defer context.AfterFunc(ctx, w.p.stop)()
	w.at.touch()
	if w.served++; w.served > 1 {
		w.p.stderr.forget()
		drain(w.p.stdout, a.config.MaxOutput)
	}
	w.p.write(string(line)+"\n", false)
	defer w.p.written.Wait() // a worker that does not read is stopped with ctx
	lines := bufio.NewScanner(w.p)
	lines.Buffer(nil, maxLine)
	left := a.config.MaxOutput
	for lines.Scan() {
		if left -= int64(len(lines.Bytes()) + 1); left < 0 {
			w.p.stop()
			return a.tooLong()
		}
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Turn != "" && e.Turn != t.call.Lineage.Turn {
			continue // a program may log, and may be late
		}
		if e.Error != "" {
			w.p.stop()
			return &agentbus.Error{Code: agentbus.CodeAgentUnavailable, Message: "the program said that it failed" + lastWords(t.hide(e.Error)), Explain: &agentbus.Explain{Rule: "B4"}}
		}
		said := a.chunk(&e, t.text, a.config.MaxOutput-left)
		if said.Text != "" || said.Reasoning != "" || e.Done {
			if err := t.emit(said); err != nil {
				w.p.stop()
				return err
			}
		}
		if e.Done {
			return nil
		}
	}
	w.p.stop()
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return a.tooLong()
	}
	w.p.wait() // until it has said all it says
	return &agentbus.Error{
		Code: agentbus.CodeAgentUnavailable, Message: "the program ended before its turn was done" + lastWords(w.p.stderr.text(t.hide)),
		Explain: &agentbus.Explain{Rule: "B4", Next: "send the same turn again: it meets a new worker"},
	}
}

// chunk is an event as a piece of an answer.
func (a *Agent) chunk(e *event, text string, written int64) agentbus.Chunk {
	c := agentbus.Chunk{Text: strings.ToValidUTF8(e.Text, "\uFFFD"), Reasoning: strings.ToValidUTF8(e.Reasoning, "\uFFFD"), Model: e.Model}
	if !e.Done {
		return c
	}
	c.Finish = "stop"
	c.Usage = &agentbus.Usage{InputTokens: int64(len(text) / bytesPerToken), OutputTokens: written / bytesPerToken, Estimated: true}
	if u := e.Usage; u != nil {
		c.Usage = &agentbus.Usage{InputTokens: tokens(u.InputTokens), CachedTokens: tokens(u.CachedTokens), OutputTokens: tokens(u.OutputTokens)}
		if a.config.ReportCost {
			c.Usage.Cost, _ = agentbus.ParseUSD(strconv.FormatFloat(u.CostUSD, 'f', -1, 64)) // what is no amount is none
		}
	}
	return c
}

func tokens(n int64) int64 { return min(max(n, 0), maxTokens) }
