package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// Streams pass streams from the process that executes a call to those that have
// duplicates of it (G22). Nothing is told unless somebody follows, and nothing of
// it counts: the ledger has the answer in the end. It is safe for concurrent use.
type Streams interface {
	// FollowStream asks owner, who executes an attempt of a call, to tell its stream.
	FollowStream(ctx context.Context, call int64, attempt int, owner string) error
	// FollowedStreams returns which attempts of owner's calls others follow: Call
	// and Attempt are set.
	FollowedStreams(ctx context.Context, owner string) ([]agentbus.StreamPiece, error)
	// WatchFollowers returns a channel that is closed soon after somebody asked to
	// follow; release ends the watch. It may ring for nothing, or not at all.
	WatchFollowers() (rung <-chan struct{}, release func())
	// TellStream tells the next piece of a stream, and wakes those who wait for the
	// call of key.
	TellStream(ctx context.Context, key agentbus.Digest, p agentbus.StreamPiece) error
	// ToldStream returns some of what was told from a place on, in order.
	ToldStream(ctx context.Context, call int64, attempt, from int) ([]agentbus.StreamPiece, error)
	// ForgetStream removes what was told.
	ForgetStream(ctx context.Context, call int64, attempt int) error
}

const (
	tellEvery     = 20 * time.Millisecond  // at most: what comes in between is one piece
	tellBytes     = 64 << 10               // in a piece
	lookFollowers = 250 * time.Millisecond // how often it is looked for those who follow, and for the first piece, unless the bell rings
	lookTold      = 100 * time.Millisecond // how often it is looked for the next piece, unless the bell rings
)

// TellStreams tells other processes the streams of this one that they follow,
// until ctx ends (G22). Streams that nobody follows cost nothing.
func (g *Gateway) TellStreams(ctx context.Context) {
	if g.cfg.Streams == nil {
		return
	}
	var tellers sync.WaitGroup
	defer tellers.Wait()
	look := time.NewTicker(lookFollowers)
	defer look.Stop()
	for ctx.Err() == nil {
		rung, release := g.cfg.Streams.WatchFollowers()
		for _, f := range g.followed(ctx) {
			tellers.Go(func() { g.tellStream(ctx, f) })
		}
		select {
		case <-rung:
		case <-look.C:
		case <-ctx.Done():
		}
		release()
	}
}

// followed returns the flights that somebody elsewhere follows, each once.
func (g *Gateway) followed(ctx context.Context) (flights []*flight) {
	if g.flights.none() {
		return nil
	}
	asked, err := g.cfg.Streams.FollowedStreams(ctx, g.cfg.Owner)
	if err != nil && ctx.Err() == nil {
		g.log.LogAttrs(ctx, slog.LevelWarn, "cannot see which streams are followed", slog.Any("error", err))
	}
	if len(asked) == 0 {
		return nil
	}
	attempts := make(map[int64]int, len(asked))
	for _, a := range asked {
		attempts[a.Call] = a.Attempt
	}
	g.flights.each(func(f *flight) {
		if f.begun && !f.followed && f.call.ID != 0 && attempts[f.call.ID] == f.call.Attempts {
			f.followed = true
			flights = append(flights, f)
		}
	})
	return flights
}

// tellStream tells the stream of a flight until it ends. How it ended, and what
// came last, the ledger tells.
func (g *Gateway) tellStream(ctx context.Context, f *flight) {
	call := f.known()
	p := agentbus.StreamPiece{Call: call.ID, Attempt: call.Attempts}
	defer func() { _ = g.cfg.Streams.ForgetStream(context.WithoutCancel(ctx), p.Call, p.Attempt) }() // the next one who follows any does
	pause := time.NewTicker(tellEvery)
	defer pause.Stop()
	for told := 0; ; {
		v := f.view(told)
		switch {
		case v.ended || v.over || v.status != 0 && !isSSE(v.header):
			return
		case v.status != 0 && (p.Place == 0 || len(v.body) > 0):
			p.Data, p.Status, p.Header = v.body[:min(len(v.body), tellBytes)], 0, nil
			if p.Place == 0 {
				p.Status, p.Header = v.status, v.header
			}
			if err := g.cfg.Streams.TellStream(ctx, f.key, p); err != nil {
				g.log.LogAttrs(ctx, slog.LevelWarn, "stream not told to those who follow it", slog.Any("error", err))
				return
			}
			told, p.Place = told+len(p.Data), p.Place+1
		default:
			select {
			case <-v.change:
				<-pause.C // what comes at once is one piece
			case <-ctx.Done():
				return
			}
		}
	}
}

// An execution names an attempt of a call.
type execution struct {
	call    int64
	attempt int
}

// toldElsewhere asks the process that executes call for its stream, once, and
// reports whether that one tells it by now.
func (g *Gateway) toldElsewhere(ctx context.Context, x *exchange, call *agentbus.CallRecord) bool {
	if g.cfg.Streams == nil || !x.peek.stream && x.dialect != dialectOther && x.dialect != dialectA2A {
		return false
	}
	if e := (execution{call.ID, call.Attempts}); x.follows != e {
		if err := g.cfg.Streams.FollowStream(ctx, e.call, e.attempt, call.Owner); err != nil {
			return false // it is waited for
		}
		x.follows = e
	}
	told, err := g.cfg.Streams.ToldStream(ctx, call.ID, call.Attempts, 0)
	return err == nil && len(told) > 0 && told[0].Place == 0
}

// A follower gives a duplicate the stream of a call that another process
// executes, as that one tells it. Duplicates here attach to it.
type follower struct {
	*Gateway

	x       *exchange
	w       http.ResponseWriter
	call    agentbus.CallRecord
	place   int // of the next piece
	respell *respeller
	left    bool // the caller has gone: what comes is for those who attached here
}

// follow answers a duplicate with the stream of a call elsewhere: the frames so
// far, then the live ones, and the end from the ledger (G22). It goes on when its
// caller leaves while others are attached here.
func (g *Gateway) follow(w http.ResponseWriter, r *http.Request, x *exchange, call agentbus.CallRecord) {
	d := &follower{Gateway: g, x: x, w: w, call: call}
	ctx, gone := context.WithoutCancel(r.Context()), r.Context().Done()
	look := time.NewTicker(lookTold)
	defer look.Stop()
	for {
		rung, release := g.cfg.WatchCall(x.want.key)
		d.take(ctx)
		done := d.ended(ctx)
		if !done {
			select {
			case <-rung:
			case <-look.C:
			case <-gone:
				d.left, gone = true, nil
			}
		}
		if release(); done {
			return
		}
		if d.left && (x.inProcess != nil || !x.leads.attended()) { // a driver of this bus waits for what it aborts
			x.leave(w)
			return
		}
	}
}

// take passes on what was told since.
func (d *follower) take(ctx context.Context) {
	for {
		told, err := d.cfg.Streams.ToldStream(ctx, d.call.ID, d.call.Attempts, d.place)
		if err != nil || len(told) == 0 || told[0].Place != d.place {
			return // the ledger tells the rest
		}
		for i := range told {
			if told[i].Place == d.place {
				d.pass(&told[i])
			}
		}
	}
}

// pass passes a piece on, to those who attached here too.
func (d *follower) pass(p *agentbus.StreamPiece) {
	if p.Place == 0 {
		d.begin(p.Status, p.Header)
		d.x.record.State = agentbus.CallVoided // unless it is settled
	}
	d.place++
	d.x.leads.publish(p.Data, d.cfg.MaxReply)
	d.left = d.left || d.send(d.w, d.respell.feed(p.Data, false)) != nil
}

// begin begins the answer, here and for those who attached to it.
func (d *follower) begin(status int, header http.Header) {
	d.x.leads.head(status, header)
	d.x.replayHead(d.w, d.call, "attached", status, header)
	d.respell = d.x.respeller(header)
}

// ended asks the ledger whether the call has ended, and ends the answer as it
// did.
func (d *follower) ended(ctx context.Context) bool {
	x, f := d.x, d.x.leads
	got, found, err := d.cfg.Ledger.Lookup(ctx, x.want.key, x.record.Digest)
	switch {
	case err != nil: // it is asked again
		return false
	case found && got.Outcome == agentbus.OutcomeInFlight && got.Call.Attempts == d.call.Attempts && d.cfg.Alive(d.call.Owner):
		return false
	case found && got.Outcome == agentbus.OutcomeExpired:
		return d.fail(errReplyExpired)
	case d.stopped.has(d.call.Run):
		return d.fail(errRunStopped)
	case !found || got.Outcome != agentbus.OutcomeSettled:
		return d.fail(errLeaderGone)
	}
	if d.place == 0 { // it ended, and what was told was removed, before any of it was read
		d.call = got.Call
		d.begin(got.Reply.Status, got.Reply.Header)
	}
	sent := f.view(0)
	rest, same := bytes.CutPrefix(got.Reply.Body, sent.body)
	if !same || sent.over {
		return d.fail(errReplyExpired)
	}
	x.record.State = got.Call.State
	f.change(func() { f.call = got.Call })
	f.publish(rest, d.cfg.MaxReply)
	d.flights.leave(f)
	_ = d.send(d.w, d.respell.feed(rest, true)) // a caller that left may ask again
	d.countReplay(ctx, x, got.Call)
	return true
}

// fail ends an answer that broke off, or has not begun, here and for those who
// attached to it.
func (d *follower) fail(err error) bool {
	d.x.failed = err
	if d.place > 0 {
		d.breakOff(d.w, d.x, err)
	}
	d.x.refuse(d.w, err)
	return true
}
