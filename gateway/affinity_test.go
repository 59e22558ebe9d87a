package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// named starts agents that answer with their name.
func named(t *testing.T, names ...string) (at []*agent) {
	t.Helper()
	for _, name := range names {
		at = append(at, newAgent(t, name, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	}
	return at
}

// who returns which URL serves each of n conversations of a payer.
func (b *bus) who(t *testing.T, payer string, n int) []string {
	t.Helper()
	served := make([]string, n)
	for i := range served {
		got := b.send(http.MethodGet, "/agents/critic/x", "", payer, "x-kagent-root-context-id: chat-"+strconv.Itoa(i))
		if served[i] = got.body; got.status != http.StatusOK {
			t.Fatal(got)
		}
	}
	return served
}

// shares counts how many conversations each URL serves.
func shares(served []string) map[string]int {
	n := map[string]int{}
	for _, name := range served {
		n[name]++
	}
	return n
}

// TestAffinity: G13 and K10, a conversation of a payer stays with one URL; a URL
// that goes moves its own conversations and no others, and they come back.
func TestAffinity(t *testing.T) {
	t.Parallel()
	const conversations = 1000
	at := named(t, "one", "two", "three")
	a := several(t, "critic", at...)
	a.Affinity = true
	b := newBus(t, nil, a)
	served := b.who(t, asAlice, conversations)
	for name, n := range shares(served) {
		if n < conversations/3-100 || n > conversations/3+100 {
			t.Errorf("%s serves %d conversations of %d", name, n, conversations)
		}
	}

	// K10, K-11: the context alone selects nothing: bob's of the same name are others.
	same := 0
	for i, name := range b.who(t, asBob, conversations) {
		if name == served[i] {
			same++
		}
	}
	if same < conversations/3-100 || same > conversations/3+100 {
		t.Errorf("%d conversations of two payers share a URL, want a third", same)
	}

	// X28, K10: nor does it under another install key, so that nobody outside can
	// say which contexts meet.
	keyed := several(t, "critic", at...)
	keyed.Affinity, keyed.AffinityKey = true, []byte("another install key")
	same = 0
	for i, name := range newBus(t, nil, keyed).who(t, asAlice, conversations) {
		if name == served[i] {
			same++
		}
	}
	if same < conversations/3-100 || same > conversations/3+100 {
		t.Errorf("%d conversations share a URL under two install keys, want a third", same)
	}

	// Another process, whose file has the URLs in another order.
	slices.Reverse(at)
	other := several(t, "critic", at...)
	other.Affinity = true
	var c clock
	c.set(other.Target)
	var down atomic.Bool
	down.Store(true)
	tr, reach := transport(t), &net.Dialer{}
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if down.Load() && addr == at[1].URL.Host { // the second
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return reach.DialContext(ctx, network, addr)
	}
	other.Transport = tr
	b = newBus(t, nil, other)
	moved := b.who(t, asAlice, conversations)
	for i, name := range moved {
		if name == "two" || served[i] != "two" && name != served[i] {
			t.Fatalf("conversation %d moved from %s to %s", i, served[i], name)
		}
	}
	if n := shares(moved); n["one"] < conversations/2-100 || n["three"] < conversations/2-100 {
		t.Errorf("what the lost URL had went to one side: %v", n)
	}
	down.Store(false)
	c.forward(time.Hour)
	if !slices.Equal(served, b.who(t, asAlice, conversations)) {
		t.Error("what the lost URL had did not come back")
	}
}

// K2, K10: a call that tells a parent context and no root stays where the calls of
// that root go, whatever its run; without the fallback it belongs to its run.
func TestAffinityOfAParent(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		a := several(t, "critic", named(t, "one", "two", "three")...)
		a.Affinity, a.NoLegacyParent = true, off
		b := newBus(t, nil, a)
		moved := false
		for i, at := range b.who(t, asAlice, 20) {
			got := b.send(http.MethodGet, "/agents/critic/x", "", asAlice, "x-tangle-runid: r"+strconv.Itoa(i), "x-kagent-parent-context-id: chat-"+strconv.Itoa(i))
			moved = moved || got.body != at
		}
		if moved != off {
			t.Errorf("without the fallback %v: elsewhere than the conversation: %v", off, moved)
		}
	}
}

// TestAffinityOfARun: G13, a call without a root context belongs to its run.
func TestAffinityOfARun(t *testing.T) {
	t.Parallel()
	at := named(t, "one", "two", "three")
	a := several(t, "critic", at...)
	a.Affinity = true
	b := newBus(t, nil, a)
	seen := map[string]bool{}
	for i := range 30 {
		run := "x-tangle-runid: r" + strconv.Itoa(i)
		first := b.send(http.MethodPost, "/agents/critic/x", "{}", asAlice, run)
		for range 3 {
			if got := b.send(http.MethodPost, "/agents/critic/x", "{}", asAlice, run); got.body != first.body {
				t.Errorf("a run moved from %s to %s", first.body, got.body)
			}
		}
		seen[first.body] = true
	}
	if len(seen) != 3 {
		t.Errorf("all runs go to %v", seen)
	}
}
