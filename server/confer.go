package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server/config"
)

// hearsay is what a bus knows of the others on its store. It belongs to the
// goroutine that keeps the store.
type hearsay struct {
	last int64                  // number of the last hint that was read
	told map[agentbus.Hint]bool // what holds here still, and was told
}

// confer tells the other buses on the store what this one found out since it did
// last, and hears what they did: breakers that opened, URLs that are left out.
// What another found out makes this one wary, and decides nothing. With its first
// look a bus hears all of the last minute, since nobody tells it again.
func (s *Server) confer(ctx context.Context) {
	if s.common == nil {
		return
	}
	now, told := s.now(), map[agentbus.Hint]bool{}
	for _, h := range now.bad() {
		told[h] = s.heard.told[h] || s.common.Hint(ctx, s.owner, h) == nil
	}
	s.heard.told = told
	hints, last, err := s.common.Hints(ctx, s.owner, s.heard.last)
	if err != nil {
		return // the next look reads them
	}
	s.heard.last = last
	for _, h := range hints {
		now.doubt(h)
		s.log.LogAttrs(ctx, slog.LevelInfo, "another replica found it failing", slog.String("kind", string(h.Kind)), slog.String("name", h.Name))
	}
}

// bad is what does not work at this moment, as far as this bus found out.
func (s *wiring) bad() (hints []agentbus.Hint) {
	for g, b := range s.breakers {
		if b.State() == "open" {
			hints = append(hints, agentbus.Hint{Kind: agentbus.HintBreaker, Name: g.conversation + "/" + g.slug})
		}
	}
	for _, t := range s.router.Targets() {
		if t.Local {
			continue
		}
		for _, u := range t.Upstreams() {
			if time.Now().Before(u.EjectedUntil) {
				hints = append(hints, agentbus.Hint{Kind: agentbus.HintURL, Name: t.Name + " " + u.URL})
			}
		}
	}
	return hints
}

// doubt takes note of what another bus found out.
func (s *wiring) doubt(h agentbus.Hint) {
	switch h.Kind {
	case agentbus.HintBreaker:
		for g, b := range s.breakers {
			if g.conversation+"/"+g.slug == h.Name {
				b.Doubt()
			}
		}
	case agentbus.HintURL:
		agent, url, _ := strings.Cut(h.Name, " ")
		for _, t := range s.router.Targets() {
			if t.Name == agent && !t.Local {
				t.Doubt(url)
			}
		}
	}
}

// ownSettings are those in which replicas may differ.
var ownSettings = []string{"listen", "admin.listen", "store.url"}

// fingerprint tells one configuration from another, but for what replicas may
// differ in, and for secrets.
func fingerprint(c *config.Config) string {
	h := sha256.New()
	for _, set := range c.Settings() {
		if !slices.Contains(ownSettings, set.Key) {
			_, _ = fmt.Fprintf(h, "%s=%s\n", set.Key, set.Value) // never fails
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// say lets the other replicas know which configuration is in force here.
func (s *Server) say(w *wiring) {
	if s.common != nil {
		s.common.Say(w.fingerprint, s.cfg.Version)
	}
}

// apart says how many replicas have another configuration in force than this
// one, in words for everybody; "": none.
func (s *Server) apart() string {
	if s.common == nil {
		return ""
	}
	own, others, all := s.now().fingerprint, 0, 0
	for fingerprint, n := range s.common.Others() {
		if all += n; fingerprint != own {
			others += n
		}
	}
	if others == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d other replicas have another configuration in force: give all of them the same one", others, all)
}
