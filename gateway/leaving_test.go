package gateway_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/internal/httpx"
)

// TestLeaderLeaves: G14 and G22, a caller that leaves while its call is being
// reserved does not fail the duplicates that wait for it.
func TestLeaderLeaves(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", nil)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	b := newBus(t, func(c *gateway.Config) { c.Ledger = slowLedger{c.Ledger, entered, release} }, a)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- b.leaving(ctx, ask("critic"), turn("r", "t")...) }()
	<-entered
	second := make(chan answer, 1)
	go func() { second <- b.call("critic", turn("r", "t")...) }()
	b.await("r", func([]agentbus.CallRecord) bool { return b.InFlight() == 2 })
	leave()
	if err := <-left; err == nil {
		t.Error("the caller that left was answered")
	}
	close(release)
	if got := <-second; got.body != completion {
		t.Errorf("the duplicate: %v", got)
	}
	if n := a.executions(); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
}

// A slowLedger reserves when it is released.
type slowLedger struct {
	gateway.Ledger
	entered, release chan struct{}
}

func (l slowLedger) Reserve(ctx context.Context, r agentbus.Reservation) (agentbus.Reserved, error) {
	l.entered <- struct{}{}
	select {
	case <-l.release:
	case <-ctx.Done():
		return agentbus.Reserved{}, ctx.Err()
	}
	return l.Ledger.Reserve(ctx, r)
}

// TestLeaderLeavesDuplicates: G14 and G22, with detaching off, or for a moment only, a
// call goes on while a duplicate waits for it, and is cut when the last one leaves.
func TestLeaderLeavesDuplicates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ detach, stays bool }{{false, true}, {false, false}, {true, true}, {true, false}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			more, cut, left := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, helloEvent)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-more:
					_, _ = io.WriteString(w, loEvent+usageEvent+doneEvent)
				case <-r.Context().Done():
					close(cut)
				}
			})
			b := newBus(t, func(g *gateway.Config) {
				if g.DetachMax, g.DetachTimeout = -1, time.Nanosecond; c.detach {
					g.DetachMax = 1
				}
			}, a)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				context.AfterFunc(r.Context(), func() { left <- struct{}{} })
				b.ServeHTTP(w, r)
			}))
			t.Cleanup(srv.Close)
			b.url = srv.URL
			var callers [2]*reading
			for i := range callers {
				callers[i] = b.openStream("critic", turn("r", "t")...)
				callers[i].reads(helloEvent)
			}
			_ = callers[0].Body.Close()
			<-left
			if !c.stays {
				_ = callers[1].Body.Close()
				<-cut
				b.one("r", agentbus.CallVoided)
				return
			}
			close(more)
			callers[1].reads(loEvent + usageEvent + doneEvent)
			callers[1].ends()
			b.one("r", agentbus.CallSettled)
		})
	}
}

// TestWaiterLeaves: G8, G22, G27 and G33, a call that waits for a place, or for its
// budget, goes on waiting while a duplicate is attached, and is a call whose caller left
// when nobody is there any more: nothing was refused.
func TestWaiterLeaves(t *testing.T) {
	t.Parallel()
	for what, bound := range map[string]func(*gateway.Config, *agent){
		"place": func(_ *gateway.Config, a *agent) { a.Concurrency, a.Queue, a.QueueTimeout = 1, 2, patience },
		"budget": func(c *gateway.Config, a *agent) {
			most := agentbus.Micros(60)
			a.Price, a.MaxCost, c.BudgetWait = agentbus.Price{Call: 10}, &most, time.Hour
			under(total(100, true))(c)
		},
	} {
		for _, stays := range []bool{true, false} {
			t.Run(fmt.Sprint(what, stays), func(t *testing.T) {
				t.Parallel()
				g := newTurnstile(t, "critic")
				o := make(observations, 8)
				b := newBus(t, func(c *gateway.Config) { c.Observers = []gateway.Observer{o}; bound(c, g.agent) }, g.agent)
				waiting := func(n int) {
					b.await("no run", func([]agentbus.CallRecord) bool { return b.QueuedAt("critic")+b.Waiting() == n })
				}
				answers, left := make(chan answer, 2), make(chan error, 1)
				go func() { answers <- b.call("critic", turn("first", "t")...) }()
				g.next(t)
				ctx, leave := context.WithCancel(t.Context())
				go func() { left <- b.leaving(ctx, ask("critic"), turn("r", "t")...) }()
				waiting(1)
				if stays {
					go func() { answers <- b.call("critic", turn("r", "t")...) }()
					b.serving(3)
				}
				leave()
				if <-left == nil {
					t.Error("the caller that left was answered")
				}
				if !stays {
					if seen := o.next(t); seen.Result != agentbus.ResultLeft || !seen.FirstByte.IsZero() || seen.Call.Code != "" || len(b.calls("r")) > 0 {
						t.Errorf("who left is told as %s %+v", seen.Result, seen.Call)
					}
					waiting(0)
					g.open <- struct{}{}
					<-answers
					return
				}
				g.open <- struct{}{}
				g.open <- struct{}{}
				for range 2 {
					if got := <-answers; got.status != http.StatusOK {
						t.Error(got)
					}
				}
			})
		}
	}
}

// TestAttachedHalfLeaves: G22 and G23, a duplicate that closes its own side while it is
// attached counts as gone, and reads nothing that looks like an answer.
func TestAttachedHalfLeaves(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	a := newAgent(t, "critic", streamUntil(more, streamRest(loEvent+usageEvent+doneEvent)))
	slow := newAgent(t, "slow", func(w http.ResponseWriter, r *http.Request) {
		<-more
		answerWith(http.StatusOK, completion)(w, r)
	})
	b := newBus(t, nil, a, slow)
	half := func(body, run string, serving int) string {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, rawPost(chatRoute, body, turn(run, "t")...)); err != nil {
			t.Fatal(err)
		}
		b.serving(serving)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil { //nolint:errcheck,forcetypeassert // what Dial makes of tcp
			t.Fatal(err)
		}
		got, _ := io.ReadAll(c) // a cut is as good as an end
		return string(got)
	}
	done := make(chan answer, 1)
	go func() { done <- b.call("slow", turn("whole", "t")...) }()
	slow.next(t)
	if got := half(ask("slow"), "whole", 2); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("a whole answer: %s", got)
	}
	b.serving(1)
	stays := b.openStream("critic", turn("stream", "t")...)
	stays.reads(helloEvent)
	if got := half(askStream("critic"), "stream", 3); !strings.Contains(got, "data: ") || strings.HasSuffix(got, "0\r\n\r\n") {
		t.Errorf("a stream looks whole: %s", got)
	}
	close(more)
	<-done
	stays.reads(loEvent + usageEvent + doneEvent)
	stays.ends()
}

// TestCallerLeaves: G14, the call goes on to its end; the retry gets its answer.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{false, true} {
		t.Run(strconv.FormatBool(streaming), func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
				if streaming {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, helloEvent)
					_ = http.NewResponseController(w).Flush()
				}
				<-release
				if streaming {
					_, _ = io.WriteString(w, loEvent+usageEvent+doneEvent)
				} else {
					answerWith(http.StatusOK, completion)(w, r)
				}
			})
			a.Price = price
			b := newBus(t, nil, a)
			body, want := ask("critic"), completion
			if streaming {
				body, want = askStream("critic"), stream
			}
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { left <- b.leaving(ctx, body, turn("r", "t")...) }()
			a.next(t)
			leave()
			if err := <-left; err == nil {
				t.Error("the caller that left was answered")
			}
			close(release)
			if r := b.one("r", agentbus.CallSettled); r.Cost != priced {
				t.Errorf("recorded as %+v", r)
			}
			got := b.send(http.MethodPost, chatRoute, body, append(turn("r", "t"), asAlice)...)
			if got.body != want || got.header.Get("X-Agentbus-Replay") == "" || a.executions() != 1 {
				t.Errorf("the retry after %d executions: %v", a.executions(), got)
			}
		})
	}
}

// TestCallerLeavesNoDetaching: G14, with detaching off the agent is told at once,
// and so it is when a request that is no call loses its caller.
func TestCallerLeavesNoDetaching(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	a := newAgent(t, "critic", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		told <- struct{}{}
	})
	o := make(observations, 8)
	b := newBus(t, func(c *gateway.Config) { c.DetachMax, c.Observers = -1, []gateway.Observer{o} }, a)
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			left <- b.leavingAt(ctx, method, "/agents/critic/chat/completions", ask("critic"), turn("r", "t")...)
		}()
		a.next(t)
		leave()
		if err := <-left; err == nil {
			t.Error("the caller that left was answered")
		}
		<-told
	}
	calls := b.await("r", func(calls []agentbus.CallRecord) bool {
		return len(calls) == 2 && calls[0].State == agentbus.CallVoided && calls[0].Cost == 0 && calls[1].State == agentbus.CallPassed
	})
	if !strings.Contains(calls[0].Message, "the caller left") || !calls[0].CallerLeft() { // and the agent did nothing wrong
		t.Errorf("it is voided as %+v", calls[0])
	}
	if sum, _, err := b.store.RunSummary(t.Context(), "r"); err != nil || sum.Standing() != agentbus.StandingStopped { // nor did the run
		t.Errorf("the run is %s, %v", sum.Standing(), err)
	}
	counted := map[string]agentbus.Result{}
	for range 2 { // G33
		seen := o.next(t)
		counted[seen.Method] = seen.Result
	}
	if counted[http.MethodPost] != agentbus.ResultLeft || counted[http.MethodGet] != agentbus.ResultPassed {
		t.Errorf("they are told as %v", counted)
	}
}

// TestDriverLeaves: G14, G33, a driver of this bus that aborts a call tells nothing
// against its agent; one that ends it for want of an answer in time does.
func TestDriverLeaves(t *testing.T) {
	t.Parallel()
	for what, why := range map[string]error{"aborts": agentbus.ErrForGood, "late": &agentbus.Error{Code: agentbus.CodeDeadlineExceeded, Message: "late"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			want := agentbus.ResultLeft
			if what == "late" {
				want = agentbus.ResultVoided
			}
			ctx, leave := context.WithCancelCause(t.Context())
			b, o := watched(t, nil, newAgent(t, "critic", func(_ http.ResponseWriter, r *http.Request) {
				leave(why)
				<-r.Context().Done()
			}))
			mark := gateway.InProcess{Caller: agentbus.Principal{ID: "driver"}, Payer: "alice"}
			b.inProcess(gateway.WithInProcess(ctx, mark), ask("critic"), agentbus.Lineage{Run: "r", Turn: "t", Depth: 1})
			if seen := o.next(t); seen.Result != want || seen.Call.State != agentbus.CallVoided || seen.Call.CallerLeft() != (want == agentbus.ResultLeft) {
				t.Errorf("it is told as %s %+v", seen.Result, seen.Call)
			}
		})
	}
}

// TestCallAroundIsLate: G3, G33, an agent that does not answer counts as one that failed
// also where the call that it was called inside of, as by a conversation, ends first.
func TestCallAroundIsLate(t *testing.T) {
	t.Parallel()
	hangs, around := newAgent(t, "hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), newAgent(t, "around", nil)
	o := make(observations, 8)
	b := newBus(t, func(c *gateway.Config) { c.CallTimeout, c.Observers = 300*time.Millisecond, []gateway.Observer{o} }, hangs, around)
	around.Local, around.Transport = true, httpx.Memory(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-time.After(100 * time.Millisecond) // so that the call around it is over first
		b.inProcess(r.Context(), ask("hangs"), agentbus.Lineage{Run: "r", Turn: "t1", Depth: 1})
	}))
	refused(t, "the call around", b.call("around", turn("r", "t")...), http.StatusGatewayTimeout, agentbus.CodeDeadlineExceeded)
	for range 2 {
		if seen := o.next(t); seen.Result != agentbus.ResultVoided {
			t.Errorf("%s is told as %s %+v", seen.Agent, seen.Result, seen.Call)
		}
	}
}

// TestDriverLeavesDuplicate: G14, G22, who attached to a call that its driver aborts reads
// why it failed: it is not told as one that left.
func TestDriverLeavesDuplicate(t *testing.T) {
	t.Parallel()
	b, o := watched(t, nil, newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		streamWith(helloEvent)(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	ctx, leave := context.WithCancelCause(t.Context())
	driven := make(chan answer, 1)
	go func() {
		mark := gateway.InProcess{Caller: agentbus.Principal{ID: "driver"}, Payer: "alice"}
		driven <- b.inProcess(gateway.WithInProcess(ctx, mark), askStream("critic"), agentbus.Lineage{Run: "r", Turn: "t", Depth: 1})
	}()
	b.one("r", agentbus.CallExecuting)
	attached := b.openStream("critic", turn("r", "t")...)
	attached.reads(helloEvent)
	leave(agentbus.ErrForGood)
	<-driven
	if got, err := io.ReadAll(attached.Body); err == nil || !strings.Contains(string(got), `"code":"agent_unavailable"`) {
		t.Errorf("the duplicate reads %q, %v", got, err)
	}
	for range 2 {
		seen := o.next(t)
		if left := seen.Result == agentbus.ResultLeft; left != (seen.Call.Status == agentbus.StatusCallerLeft) || !left && seen.Call.Status != http.StatusBadGateway {
			t.Errorf("told as %s %+v", seen.Result, seen.Call)
		}
	}
}

// TestCallerLeavesAttachedAgent: G14, an agent with detaching off is told when
// its caller leaves, and its call is voided; another of the same bus is not.
func TestCallerLeavesAttachedAgent(t *testing.T) {
	t.Parallel()
	release, told := make(chan struct{}), make(chan string, 2)
	serve := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
			answerWith(http.StatusOK, completion)(w, r)
		case <-r.Context().Done():
			told <- r.Header.Get("x-tangle-runid")
		}
	}
	attached, detached := newAgent(t, "attached", serve), newAgent(t, "detached", serve)
	attached.NoDetach = true
	b := newBus(t, nil, attached, detached)
	for _, a := range []*agent{detached, attached} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- b.leaving(ctx, ask(a.Name), turn(a.Name, "t")...) }()
		a.next(t)
		leave()
		if err := <-left; err == nil {
			t.Error("the caller that left was answered")
		}
	}
	if got := <-told; got != "attached" {
		t.Errorf("the call of %s was cut", got)
	}
	if r := b.one("attached", agentbus.CallVoided); r.Cost != 0 {
		t.Errorf("recorded as %+v", r)
	}
	if got := attached.Upstreams()[0].Failures; got != 0 {
		t.Errorf("G13: the leaving of a caller counts %d times as the agent's failure", got)
	}
	close(release)
	b.one("detached", agentbus.CallSettled)
}

// TestDetachedAreBounded: G14, as many calls as configured go on without their
// caller; one more is cut.
func TestDetachedAreBounded(t *testing.T) {
	t.Parallel()
	release, told := make(chan struct{}), make(chan string, 2)
	a := newAgent(t, "critic", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
			answerWith(http.StatusOK, completion)(w, r)
		case <-r.Context().Done():
			told <- r.Header.Get("x-tangle-runid")
		}
	})
	b := newBus(t, func(c *gateway.Config) { c.DetachMax = 1 }, a)
	for _, run := range []string{"r1", "r2"} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- b.leaving(ctx, ask("critic"), turn(run, "t")...) }()
		a.next(t)
		leave()
		if err := <-left; err == nil {
			t.Error("the caller that left was answered")
		}
		if run == "r1" {
			b.await(run, func([]agentbus.CallRecord) bool { return b.Detached() == 1 })
		}
	}
	if got := <-told; got != "r2" {
		t.Errorf("%s was cut, want r2", got)
	}
	close(release)
	b.one("r1", agentbus.CallSettled)
	b.one("r2", agentbus.CallVoided)
}

// TestDetachedUntilItsRetry: G14 and G22, a call that goes on alone leaves its place to
// others while its retry waits for it, and takes one again when that leaves, too.
func TestDetachedUntilItsRetry(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	a := newAgent(t, "critic", streamUntil(release, streamRest(loEvent+usageEvent+doneEvent)))
	b := newBus(t, nil, a)
	t.Cleanup(letGo) // before the agent is closed
	for range 3 {    // the first and two retries, none of which waits for the end
		caller := b.openStream("critic", turn("r", "t")...)
		caller.reads(helloEvent)
		eventually(t, "its caller is there", func() bool { return b.Detached() == 0 })
		_ = caller.Body.Close()
		eventually(t, "it goes on alone", func() bool { return b.Detached() == 1 })
	}
	letGo()
	if r := b.one("r", agentbus.CallSettled); r.Attempts != 1 {
		t.Errorf("recorded as %+v", r)
	}
}

// TestAbort: G31, what is left when a shutdown's patience is over is cut and
// voided.
func TestAbort(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "critic", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	b := newBus(t, nil, a)
	done := make(chan answer)
	go func() { done <- b.call("critic", turn("r", "t")...) }()
	a.next(t)
	b.Drain()
	b.Abort()
	refused(t, "aborted", <-done, http.StatusServiceUnavailable, agentbus.CodeDraining)
	b.one("r", agentbus.CallVoided)
}

// leaving makes a call as alice and gives it up when ctx ends.
func (b *bus) leaving(ctx context.Context, body string, headers ...string) error {
	return b.leavingAt(ctx, http.MethodPost, chatRoute, body, headers...)
}

func (b *bus) leavingAt(ctx context.Context, method, path, body string, headers ...string) error {
	r, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(r.Header, headerOf(append(headers, asAlice)))
	resp, err := b.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
