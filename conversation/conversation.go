package conversation

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentbus/agentbus"
)

// A Conversation is a definition: who takes turns, until when. Its zero fields
// mean what is said at them; it is not changed by running it.
type Conversation struct {
	// Name identifies the definition; it is part of the id of an execution that
	// serves a turn. Required.
	Name string
	// Participants take the turns: two or more, of distinct slugs (P15).
	Participants []Participant
	// MaxTurns is after how many turns it is over; at least 1.
	MaxTurns int
	// Budget is what its turns may cost together; nil is no limit, and a limit
	// of 0 halts before the first turn (R8).
	Budget *agentbus.Micros
	// RecursionLimit is how many turns may be begun: the run fails before one more
	// (E35), while MaxTurns is an end that was meant. 0 is any number.
	RecursionLimit int
	// TokenBudget is how many tokens its answers may take together, read and
	// written; 0 is no limit. It is looked at before each turn, with the MaxTokens
	// of who would speak. What attempts took that failed is not known.
	TokenBudget int64
	// MaxWidth is the most participants that may be asked at once (R20); 0 is
	// DefaultMaxWidth. It is checked before the first of them is.
	MaxWidth int
	// OnHalt says what a halt does that is not final by its kind; "" is
	// OnHaltPause.
	OnHalt OnHalt
	// Plan decides who speaks; nil is [Alternate] for two participants and
	// [RoundRobin] for more.
	Plan Plan
	// HaltContains halts when a turn's text contains it; "" never does.
	HaltContains string
	// HaltWhen halts when it says so of the turns so far, with the reason. It
	// is asked after each turn and is pure, as a Plan is; nil never halts.
	HaltWhen func(turns []agentbus.Turn) (reason string, halt bool)
	// Version is part of what a resume compares (R15): change it when Plan,
	// HaltWhen, AuthWhen or a backend changes, which cannot be compared themselves.
	Version string

	origin agentbus.ExecutionID // of a fork: the run that it goes on from
}

// OnHalt says what a participant's error, or a budget that is used up, does to a
// run (R16).
type OnHalt string

// What a halt does. An abort always pauses: whoever asked for it may go on.
const (
	OnHaltPause OnHalt = "pause" // the run can be resumed
	OnHaltFail  OnHalt = "fail"  // the run is over, with Halt.Failed
)

// A Participant is a named peer and how to reach it.
type Participant struct {
	// Name is the speaker, and nobody else's: plans go by it. Required.
	Name agentbus.Speaker
	// Slug stands for the name in turn ids, and on the wire when the name cannot
	// be sent (P18); "" is the name's own. Needed when two names share one (P15).
	Slug string
	// Label is how the others see who spoke, as "[label] text"; "" is the name.
	Label string
	// Agent is the agent behind Backend, for the key of a turn and for backends
	// that serve several; "" is the name.
	Agent string
	// Ref is who it is on the event wire (E20); zero is host:<slug>, under its
	// name (E21).
	Ref agentbus.AgentRef
	// Decides says that its replies decide something: {"decision": …} and perhaps a
	// confidence, which may be too low to stand (E30). A moderator's do always.
	Decides bool
	// Tools are those that it may call, as <slug>:<name>; nil: it runs its own, and
	// nobody is to be asked (E27).
	Tools []string
	// Prompt is the message of a system that it is sent before all others; "":
	// none.
	Prompt string
	// Model, Temperature and MaxTokens are those of [agentbus.Call], of each of its
	// turns.
	Model       string
	Temperature *float64
	MaxTokens   int
	// Backend answers. Required.
	Backend agentbus.Backend
	// Auth says who pays; "" is AuthForwardUser.
	Auth AuthMode
	// AuthWhen says who pays for its next turn, from the turns so far, in place of
	// Auth; "" is Auth. It is pure, as a Plan is. nil: Auth holds.
	AuthWhen func(turns []agentbus.Turn) AuthMode
	// MaxCost is the most that one call can cost, reserved before each (R8); 0
	// is unknown: then a call is refused only once the budget is spent.
	MaxCost agentbus.Micros
}

// An AuthMode says whether the origin's credential goes to a participant.
type AuthMode string

// The modes of a participant.
const (
	AuthForwardUser AuthMode = "forward-user" // the origin pays: its credential travels on
	AuthAgentOwned  AuthMode = "agent-owned"  // it pays for itself: no credential travels, nor below it (P22)
)

// slug returns what stands for p in turn ids.
func (p *Participant) slug() string {
	if p.Slug != "" {
		return p.Slug
	}
	return p.Name.Slug()
}

// wire returns the speaker that calls are made with: the name, or the slug when
// the name cannot be sent and has one of its own.
func (p *Participant) wire() agentbus.Speaker {
	if p.Slug != "" && p.Name.Wire() != string(p.Name) {
		return agentbus.Speaker(p.Slug)
	}
	return p.Name
}

// owns reports whether p pays for its turn after turns (R2). A mode that there is not
// would let the origin's credential go where it was not meant to.
func (p *Participant) owns(turns []agentbus.Turn) (owned bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked("auth of "+string(p.Name)+" panicked", r)
		}
	}()
	mode := p.Auth
	if p.AuthWhen != nil {
		mode = cmp.Or(p.AuthWhen(slices.Clip(turns)), p.Auth)
	}
	if !mode.known() {
		return false, fmt.Errorf("auth of %s: %q is not %s or %s", p.Name, mode, AuthForwardUser, AuthAgentOwned)
	}
	return mode == AuthAgentOwned, nil
}

// known reports whether there is such a mode; "" is the usual one.
func (m AuthMode) known() bool { return m == "" || m == AuthForwardUser || m == AuthAgentOwned }

func (p *Participant) label() string {
	if p.Label != "" {
		return p.Label
	}
	return string(p.Name)
}

func (p *Participant) agent() string {
	if p.Agent != "" {
		return p.Agent
	}
	return string(p.Name)
}

// line is what was said in t, as a transcript has it.
func (c *Conversation) line(t *agentbus.Turn) string {
	label := string(t.Speaker)
	for i := range c.Participants {
		if p := &c.Participants[i]; p.Name == t.Speaker {
			label = p.label()
		}
	}
	return "[" + label + "] " + t.Reply.Text
}

// Validate returns every fault of the definition at once, each naming its
// field (R1), or nil.
func (c *Conversation) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if strings.TrimSpace(c.Name) == "" {
		fault("name: must not be blank")
	}
	if n := len(c.Participants); n < 2 {
		fault("participants: at least 2 are required, not %d", n)
	}
	for i := range c.Participants {
		faults = append(faults, c.participantFaults(i)...)
	}
	if c.MaxTurns < 1 {
		fault("max_turns: must be at least 1, not %d", c.MaxTurns)
	}
	if c.Budget != nil && *c.Budget < 0 {
		fault("budget: must not be negative")
	}
	if c.MaxWidth < 0 {
		fault("max_width: must not be negative")
	}
	if c.RecursionLimit < 0 || c.TokenBudget < 0 {
		fault("recursion_limit and token_budget: must not be negative")
	}
	switch c.OnHalt {
	case "", OnHaltPause, OnHaltFail:
	default:
		fault("on_halt: %q is not %s or %s", c.OnHalt, OnHaltPause, OnHaltFail)
	}
	return errors.Join(append(faults, c.planFaults()...)...)
}

// participantFaults returns the faults of one participant.
func (c *Conversation) participantFaults(i int) (faults []error) {
	p := &c.Participants[i]
	fault := func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf("participants[%d].%s: "+format, append([]any{i, field}, args...)...))
	}
	before := c.Participants[:i]
	if strings.TrimSpace(string(p.Name)) == "" {
		fault("name", "must not be blank")
		before = nil // there is no name that could be theirs too
	}
	if p.Slug != "" && agentbus.Speaker(p.Slug).Slug() != p.Slug {
		fault("slug", "%q is not a slug, but %q would be", p.Slug, agentbus.Speaker(p.Slug).Slug())
	}
	for j := range before {
		if q := &before[j]; q.slug() == p.slug() && strings.TrimSpace(string(q.Name)) != "" {
			fault("name", "%q and %q are both %q in turn ids; give one of them a slug: of its own", q.Name, p.Name, p.slug())
			break
		}
		if q := &before[j]; q.Name == p.Name {
			fault("name", "%q takes part twice, and plans go by names; give one of them another name, with the same agent", p.Name)
			break
		}
	}
	if p.Backend == nil {
		fault("backend", "is required")
	}
	if !p.Auth.known() {
		fault("auth", "%q is not %s or %s", p.Auth, AuthForwardUser, AuthAgentOwned)
	}
	if t := p.Temperature; t != nil && !(*t >= 0 && *t <= 2) { // NaN is neither
		fault("temperature", "must be 0 to 2, not %v", *t)
	}
	if p.MaxCost < 0 {
		fault("max_cost", "must not be negative")
	}
	if p.MaxTokens < 0 {
		fault("max_tokens", "must not be negative")
	}
	return faults
}

// planFaults returns the faults of a plan of ours.
func (c *Conversation) planFaults() (faults []error) {
	var names []agentbus.Speaker
	switch p := plain(c.Plan).(type) {
	case Alternate:
		if names = p[:]; len(c.Participants) != 2 {
			return []error{fmt.Errorf("plan: alternate needs exactly 2 participants, not %d; use round-robin", len(c.Participants))}
		}
	case RoundRobin:
		if names = p; len(p) == 0 {
			return []error{errors.New("plan: round-robin names nobody")}
		}
	case FanOut:
		faults = p.faults(c)
		if names = p.Ask; p.Synthesizer != "" {
			names = append(slices.Clip(names), p.Synthesizer)
		}
	case nowhere:
		return []error{errNowhere}
	case Relay:
		faults, names = p.faults(), p.speakers()
	case Moderator:
		faults, names = p.faults(), append(slices.Clip(p.Others), p.Decides)
	}
	for _, name := range names {
		if !slices.ContainsFunc(c.Participants, func(p Participant) bool { return p.Name == name }) {
			faults = append(faults, fmt.Errorf("plan: %q is no participant", name))
		}
	}
	return faults
}

// maxWidth returns the most that may be asked at once.
func (c *Conversation) maxWidth() int { return cmp.Or(c.MaxWidth, DefaultMaxWidth) }

// plain returns what a pointer to a plan of ours points to: it is that plan, and
// what is wrong with it is found in the same way.
func plain(p Plan) Plan {
	switch p := p.(type) {
	case *Alternate:
		return pointed(p)
	case *RoundRobin:
		return pointed(p)
	case *FanOut:
		return pointed(p)
	case *Moderator:
		return pointed(p)
	}
	return p
}

// pointed returns what p points to; nowhere is a plan of its own, which is refused.
func pointed[P Plan](p *P) Plan {
	if p == nil {
		return nowhere{}
	}
	return *p
}

// nowhere is a nil pointer to a plan.
type nowhere struct{}

// Next fails.
func (nowhere) Next([]agentbus.Turn) (Step, error) { return Step{}, errNowhere }

var errNowhere = errors.New("plan: is a nil pointer")

// plan returns the plan, or the default one (R3).
func (c *Conversation) plan() Plan {
	if c.Plan != nil {
		return plain(c.Plan)
	}
	names := make([]agentbus.Speaker, len(c.Participants))
	for i := range c.Participants {
		names[i] = c.Participants[i].Name
	}
	if len(names) == 2 {
		return Alternate(names)
	}
	return RoundRobin(names)
}

// unusual tells an order of speaking that is not that of the participants, which
// a digest has already.
func (c *Conversation) unusual(order []agentbus.Speaker) string {
	if slices.EqualFunc(order, c.Participants, func(s agentbus.Speaker, p Participant) bool { return s == p.Name }) {
		return ""
	}
	return fmt.Sprintf("%q", order)
}

// digest identifies the definition, as far as it can be compared (R15). The
// budget is not part of it: a run that halted at one is resumed with more.
func (c *Conversation) digest() agentbus.Digest {
	type participant struct {
		Name               agentbus.Speaker
		Slug, Label, Agent string
		Auth               AuthMode
		MaxCost            agentbus.Micros
		Decides            bool     `json:",omitempty"`
		Tools              []string `json:",omitempty"`
		Prompt, Model      string   `json:",omitempty"`
		Temperature        *float64 `json:",omitempty"`
		MaxTokens          int      `json:",omitempty"`
	}
	def := struct {
		Name, Version, HaltContains, Plan string
		MaxTurns                          int
		Participants                      []participant
	}{c.Name, c.Version, c.HaltContains, fmt.Sprintf("%T", c.plan()), c.MaxTurns, nil}
	switch p := c.plan().(type) {
	case FanOut, Moderator, Relay:
		def.Plan += fmt.Sprintf("%q", p)
	case Alternate:
		def.Plan += c.unusual(p[:])
	case RoundRobin:
		def.Plan += c.unusual(p)
	}
	for i := range c.Participants {
		p := &c.Participants[i]
		auth := p.Auth
		if auth == "" {
			auth = AuthForwardUser
		}
		def.Participants = append(def.Participants, participant{
			p.Name, p.slug(), p.label(), p.agent(), auth, p.MaxCost, p.Decides, p.Tools, p.Prompt, p.Model, p.Temperature, p.MaxTokens,
		})
	}
	raw, _ := json.Marshal(def) //nolint:musttag // strings and numbers: it cannot fail, and it goes nowhere
	return sha256.Sum256(raw)
}
