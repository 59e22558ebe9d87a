package config

import (
	"time"

	"github.com/agentbus/agentbus"
)

// A Kind says how an agent is reached (G2).
type Kind string

// The kinds of agent that this version serves.
const (
	KindOpenAI       Kind = "openai"       // an OpenAI-compatible URL
	KindBuiltin      Kind = "builtin"      // one of ours: offline, for trying and testing
	KindConversation Kind = "conversation" // a declared conversation
	KindExec         Kind = "exec"         // a program
	KindA2A          Kind = "a2a"          // an A2A agent
)

// An Agent is one agent of the bus. The key it stands under is its name.
type Agent struct {
	Kind    Kind     `yaml:"kind" required:"true" enum:"openai|a2a|builtin|conversation|exec" doc:"openai (an OpenAI-compatible URL), a2a (an agent that speaks A2A), builtin (offline, for trying and testing), conversation or exec (a program)."`
	Aliases []string `yaml:"aliases" pattern:"^[!#-+\\x2d-~]{1,200}$" doc:"Other names a caller may use for it as model."`
	Address string   `yaml:"address" pattern:"^((@|acct:)?[A-Za-z0-9._-]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?[.])+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)?$" example:"'@critic@bots.example.com'" doc:"Address under which everybody finds it, by WebFinger and the card of its address, and which a caller may use as model (C34, C36). Empty: it has none."`

	URL            string                         `yaml:"url" example:"http://127.0.0.1:9001/v1" for:"openai|a2a" required:"true" or:"urls" pattern:"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+(/[^?#]*)?$" doc:"Base URL, such as http://127.0.0.1:9001/v1. Of an a2a agent, what its card stands below; the endpoints that the card names on the same host are called, else the URL itself."`
	URLs           []string                       `yaml:"urls" for:"openai|a2a" min:"1" max:"32" pattern:"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+(/[^?#]*)?$" doc:"Several base URLs in place of url: each call goes to the one with the fewest in flight (G13)."`
	Affinity       AgentAffinity                  `yaml:"affinity" for:"openai|a2a|exec" enum:"conversation" doc:"conversation: the calls of one conversation of one payer go to the same of urls for as long as it answers (G13), or to the same working directory and worker of a program (B4). Empty: to any."`
	Eject          Eject                          `yaml:"eject" for:"openai|a2a" doc:"When one of urls is left out (G13)."`
	Model          string                         `yaml:"model" for:"openai" doc:"The agent's own name of its model. Empty: the caller's is passed on."`
	Models         []string                       `yaml:"models" for:"openai" pattern:"^[!-~]{1,256}$" example:"[gpt-x-mini]" doc:"Models that a run may ask for in place of model, at the price of this agent (configurable.model, E7). Empty: none."`
	APIKeyEnv      string                         `yaml:"api_key_env" pattern:"^[A-Za-z_][A-Za-z0-9_]*$" for:"openai|a2a" doc:"Environment variable that holds the agent's API key."`
	APIKeyFile     string                         `yaml:"api_key_file" for:"openai|a2a" doc:"File that holds the agent's API key, on one line."`
	Headers        map[string]agentbus.Credential `yaml:"headers" keys:"^[!#$%&'*+.^_|~0-9A-Za-z-]{1,128}$" for:"openai|a2a" doc:"Headers added to every call of the agent. Protocol headers and Authorization cannot be set (K6)."`
	Auth           AgentAuth                      `yaml:"auth" for:"openai|a2a" enum:"passthrough" doc:"passthrough hands the agent the caller's own Authorization (P22). Empty: it gets its own key, or none."`
	Kagent         bool                           `yaml:"kagent" for:"openai|a2a" default:"false" doc:"Tell the agent on whose behalf it is called: x-user-id, and x-kagent-source: agent on calls of agents and conversations (K7)."`
	AllowPlaintext bool                           `yaml:"allow_plaintext" for:"openai|a2a" doc:"Send credentials over plain HTTP to a host that is not loopback (P24)."`

	DefaultVersion  string    `yaml:"default_version" for:"a2a" pattern:"^([0-9]+[.][0-9]+)?$" example:"'0.3'" doc:"A2A version that the agent is told when a caller names none. Empty: none either, which means 0.3 (A8)."`
	Dedupe          A2ADedupe `yaml:"dedupe" for:"a2a" enum:"message_id|off" doc:"message_id: a message whose id was seen before is answered from memory, as with an Idempotency-Key (A20). Empty: as a2a.dedupe says."`
	Push            A2APush   `yaml:"push" for:"a2a" enum:"deny|passthrough" doc:"Webhooks, which bypass the bus: deny, or passthrough to URLs on the public network. Empty: as a2a.push says (A17)."`
	IsolateSessions bool      `yaml:"isolate_sessions" for:"a2a" default:"false" doc:"Called as a model, the agent is told each call in an A2A context of its own. false: the calls of one participant of a run share one (K8)."`
	Idempotent      bool      `yaml:"idempotent" for:"a2a" default:"false" doc:"The agent answers a message that comes again with what it made of it the first time: one whose connection was lost is sent again. false: its call fails with outcome_unknown (A22)."`
	ForwardHeaders  []string  `yaml:"forward_headers" for:"a2a" pattern:"^[!#$%&'*+.^_|~0-9A-Za-z-]{1,128}$" example:"[x-tenant]" doc:"Headers of callers that the agent is told, beside those of A2A and of the protocol (A7)."`

	Builtin      string `yaml:"builtin" for:"builtin" required:"true" enum:"echo|eliza|loop|flaky|slow|pay" doc:"echo, eliza, loop (calls itself), flaky, slow or pay (asks to be paid, then echoes)."`
	Conversation string `yaml:"conversation" example:"NAME" for:"conversation" required:"true" doc:"Name of the conversation that answers."`

	Command    []string      `yaml:"command" for:"exec" required:"true" example:"[claude, --print]" doc:"The program and its arguments. No shell reads them (B5)."`
	Input      ExecInput     `yaml:"input" for:"exec" default:"stdin" enum:"stdin|arg" doc:"How the program is given its prompt: on its standard input, or as its last argument, behind -- (B1)."`
	Output     ExecOutput    `yaml:"output" for:"exec" default:"text" enum:"text|jsonl|claude-stream-json|codex-json" doc:"How what the program writes is read: text is the answer; of jsonl, JSON lines, fields say what is what; claude-stream-json is what claude --print --verbose --output-format stream-json writes, codex-json what codex exec --json does (B1)."`
	Fields     ExecFields    `yaml:"fields" for:"exec" doc:"Where the lines of output jsonl hold what (B1)."`
	Session    ExecSession   `yaml:"session" for:"exec" doc:"How a program that keeps its conversations itself is told which one a turn belongs to; it needs affinity: conversation (B4)."`
	Mode       ExecMode      `yaml:"mode" for:"exec" default:"process" enum:"process|worker" doc:"process: one for each turn. worker: one for each conversation of a payer, which reads and writes JSON lines; it needs affinity: conversation (B4)."`
	Workers    int           `yaml:"workers" for:"exec" default:"16" min:"1" max:"100000" doc:"Workers at once; an idle one makes room for another (B4)."`
	WorkerIdle time.Duration `yaml:"worker_idle" for:"exec" default:"10m" min:"1ms" max:"24h" doc:"How long a worker may be idle before it is ended (B4)."`
	Env        []string      `yaml:"env" for:"exec" doc:"Variables of the bus that the program sees, by name, beside HOME, LANG, LC_ALL, LC_CTYPE, LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ, USER and those of its turn (B2)."`
	ForwardEnv string        `yaml:"forward_authorization_env" for:"exec" pattern:"^([A-Za-z_][A-Za-z0-9_]*)?$" doc:"Variable that hands the program the credential of the user, whole (B2). Empty: the program does not get it."`
	Timeout    time.Duration `yaml:"timeout" for:"exec" default:"5m" min:"1ms" max:"24h" doc:"How long a turn of the program may take; then it is ended (B3)."`
	KillAfter  time.Duration `yaml:"kill_after" for:"exec" default:"1s" min:"1ms" max:"1m" doc:"How long the program has after SIGTERM before it is killed, with all that it started (B3)."`
	MaxOutput  Size          `yaml:"max_output" for:"exec" default:"16MiB" min:"1" max:"1GiB" doc:"What the program may write in a turn (B3)."`
	MaxMemory  Size          `yaml:"max_memory" for:"exec" default:"0" min:"0" doc:"Memory that each process of the program, and all of them together, may have for themselves, on Linux; 0: any (B3)."`
	Dir        string        `yaml:"dir" for:"exec" doc:"Where the working directories of the program are made. Empty: agentbus/NAME in the user's cache directory (B3)."`
	DirAge     time.Duration `yaml:"dir_age" for:"exec" default:"7d" min:"1h" doc:"How long the working directory of a conversation is kept after its last turn (B3)."`
	ShareDir   bool          `yaml:"share_dir" for:"exec" doc:"The program runs in dir itself, whoever calls."`

	AnswersJSON bool `yaml:"answers_json" for:"a2a|conversation|exec" default:"false" doc:"You vouch that its answers are the JSON that its callers ask for: calls with a response_format, which it is not told, are let through. false: they are refused, 415 (G2)."`

	ACL        *ACL             `yaml:"acl" doc:"Who may call the agent, by evidence of identity (C24). Absent: whoever the agents of its key let."`
	Detach     AgentDetach      `yaml:"detach" default:"on" enum:"on|off" doc:"off: a call ends when its caller leaves, whatever the section detach says (G14)."`
	Tools      []string         `yaml:"tools" for:"openai" pattern:"^[a-z0-9_-]+:.+$" example:"[writer:search]" doc:"The tools that it may call, as SCOPE:NAME, where SCOPE is its slug: others are taken out of requests to it, and a call of another in a conversation is told as forbidden (E27). Absent: requests pass as they come, and conversations go by tools.default."`
	Price      *Price           `yaml:"price" doc:"What a call costs the payer. Absent: nothing is known of its price."`
	UsageCost  bool             `yaml:"usage_cost" doc:"Charge what the agent reports as usage.cost, in place of price (G26)."`
	MaxCostUSD *agentbus.Micros `yaml:"max_cost_usd" doc:"The most one call is charged, in USD, whatever it cost, and what is reserved of budgets before it is made (G27)."`

	Concurrency  int           `yaml:"concurrency" default:"0" min:"0" max:"1000000" doc:"Calls of this agent at once (G8). 0: any number."`
	Queue        int           `yaml:"queue" default:"64" min:"0" max:"1000000" doc:"Calls that may wait while the agent has all it may have at once; more are answered 503 with Retry-After (G8)."`
	QueueTimeout time.Duration `yaml:"queue_timeout" default:"10s" min:"1ms" doc:"How long a call waits there; then it is answered 503 with Retry-After (G8)."`
	OnCrash      CrashPolicy   `yaml:"on_crash" default:"retry" enum:"retry|refuse" doc:"A call that was being executed when the bus crashed: retry (the same turn goes to the agent again, which may know it) or refuse (409 outcome_unknown, until an operator voids it) (G24)."`

	// At is Address as it is read; none when it is empty.
	At agentbus.Address `yaml:"-"`

	// Authorization is the agent's own credential, "Bearer " and the key of
	// APIKeyEnv or APIKeyFile; none when the agent has no key.
	Authorization agentbus.Credential `yaml:"-"`

	_ later `yaml:"manifest" doc:"Agent manifest (E20, E27, E30)." instead:"nothing is read from the file, its toolAllowlist included: list the tools in tools.default, or in tools of an agent of kind openai, and remove the key"`
	_ later `yaml:"harness_role" doc:"Role of the agent in a harness (E27)." instead:"no role allows or forbids a tool: list the tools in tools.default, or in tools of an agent of kind openai, and remove the key"`
	_ later `yaml:"sharing" doc:"With whom its context is shared (E20)." instead:"a conversation's participants are told what is said in it, and share nothing else: remove the key"`
}

// ExecInput is how a program is given its prompt (B1).
type ExecInput string

// ExecOutput is how what a program writes is read (B1).
type ExecOutput string

// ExecMode is how long a program runs (B1, B4).
type ExecMode string

// The modes.
const (
	ExecProcess ExecMode = "process" // for a turn
	ExecWorker  ExecMode = "worker"  // for the turns of a conversation of a payer
)

// ExecArg gives the prompt as the last argument.
const ExecArg ExecInput = "arg"

// The outputs.
const (
	ExecText   ExecOutput = "text"
	ExecJSONL  ExecOutput = "jsonl"
	ExecClaude ExecOutput = "claude-stream-json"
	ExecCodex  ExecOutput = "codex-json"
)

// An ExecSession is what a program is told of the conversation that a turn
// belongs to. It has the fields of execagent's Session and converts to it.
type ExecSession struct {
	First []string `yaml:"first" doc:"Arguments of the first turn of a conversation, behind command; {session} in them is the id of its session, a UUID."`
	Next  []string `yaml:"next" doc:"Arguments of the turns after it; {session} is the same id, or the one that the program has told in its lines."`
}

// ExecFields say where JSON lines hold what: each is a path, such as
// message.text. It has the fields of execagent's Fields and converts to it.
type ExecFields struct {
	Type   string   `yaml:"type" doc:"Where a line says what it is. Empty: all lines are read."`
	Types  []string `yaml:"types" doc:"What a line must be to be read, where type is set."`
	Nested string   `yaml:"nested" doc:"A line with a value here is of a sub-agent, and is passed over."`

	Text           string `yaml:"text" doc:"More of the answer."`
	Between        string `yaml:"between" doc:"What comes between two lines of it."`
	Reasoning      string `yaml:"reasoning" doc:"More of the agent's reasoning."`
	TextPiece      string `yaml:"text_piece" doc:"A piece of what a later line says whole as text; that is then not told again."`
	ReasoningPiece string `yaml:"reasoning_piece" doc:"A piece of what a later line says whole as reasoning."`

	Result    string `yaml:"result" doc:"The whole answer; it counts when there was no text."`
	Error     string `yaml:"error" doc:"True, a text or an object, or a list with such in it, in a line that says that the turn failed."`
	ErrorText string `yaml:"error_text" doc:"Why it did: the first text there."`
	Model     string `yaml:"model" doc:"The model that answered."`
	Session   string `yaml:"session" doc:"The id of the session that the turn is served in; of any line, whatever its type."`

	ToolName  string `yaml:"tool_name" doc:"A tool that the agent has used; it is told as reasoning."`
	ToolInput string `yaml:"tool_input" doc:"What it used the tool on."`

	InputTokens  []string `yaml:"input_tokens" doc:"Numbers whose sum is the input tokens, the cached ones included."`
	CachedTokens string   `yaml:"cached_tokens" doc:"Those of them that came from a cache."`
	OutputTokens string   `yaml:"output_tokens" doc:"The output tokens."`
	Cost         string   `yaml:"cost" doc:"What it cost in USD; charged with usage_cost: true."`
}

// A2ADedupe says by what duplicates of a message are told.
type A2ADedupe string

// What duplicates are told by.
const (
	DedupeMessage A2ADedupe = "message_id"
	DedupeOff     A2ADedupe = "off" // by turn id and Idempotency-Key only
)

// A2APush is what becomes of webhooks (A17).
type A2APush string

// What becomes of webhooks.
const (
	PushDeny        A2APush = "deny"
	PushPassthrough A2APush = "passthrough"
)

// AgentAuth is whose Authorization an agent gets.
type AgentAuth string

// AuthPassthrough hands the agent the caller's own Authorization (P22).
const AuthPassthrough AgentAuth = "passthrough"

// A CrashPolicy is what becomes of a call that a crash cut off (G24).
type CrashPolicy string

// The crash policies.
const (
	CrashRetry  CrashPolicy = "retry"  // the same turn goes to the agent again
	CrashRefuse CrashPolicy = "refuse" // 409 outcome_unknown
)

// AgentAffinity is what binds calls to one of several URLs.
type AgentAffinity string

// AffinityConversation binds the calls of one conversation of one payer (G13).
const AffinityConversation AgentAffinity = "conversation"

// AgentDetach says whether calls go on without their caller (G14).
type AgentDetach string

// DetachOff ends a call when its caller leaves.
const DetachOff AgentDetach = "off"

// Eject says when one of several URLs is left out, and for how long (G13). It
// has the fields of the gateway's Eject and converts to it.
type Eject struct {
	Failures int           `yaml:"failures" default:"5" min:"1" max:"1000000" doc:"Failures in a row after which a URL is left out: no connection, no answer in time, one that breaks off, 502, 503 and 504."`
	For      time.Duration `yaml:"for" default:"10s" min:"1ms" max:"24h" doc:"How long the first time; then one request finds out, and it is twice as long each time the URL is still bad."`
	AtMost   time.Duration `yaml:"at_most" default:"2m" min:"1ms" max:"24h" doc:"The longest a URL is left out at a time."`
}

// A Price says what one call costs. It has the fields of [agentbus.Price] and
// converts to it.
type Price struct {
	Input  agentbus.Micros `yaml:"input" default:"0" doc:"USD per million input tokens."`
	Cached agentbus.Micros `yaml:"cached" default:"0" doc:"USD per million cached input tokens; 0: as input."`
	Output agentbus.Micros `yaml:"output" default:"0" doc:"USD per million output tokens."`
	Call   agentbus.Micros `yaml:"call" default:"0" doc:"USD per call."`
}

// A Conversation is two or more agents taking turns (R1 to R3). The key it
// stands under is its name.
type Conversation struct {
	Participants []Participant    `yaml:"participants" required:"true" min:"2" doc:"Who speaks, in order: two or more. An agent may take part more than once, each time with a slug of its own, which is its name then."`
	Plan         Plan             `yaml:"plan" enum:"alternate|round-robin|relay|moderator|fan-out" doc:"alternate (exactly two), round-robin, relay (in order, but whom a reply mentions speaks next), moderator (one names the next speaker) or fan-out (all at once). Empty: alternate for two, round-robin for more (R3)."`
	Moderator    string           `yaml:"moderator" example:"NAME" doc:"Of plan moderator: the participant whose reply names the next speaker, by a last line next: NAME, or done. The same as decides: true at it."`
	Join         string           `yaml:"join" example:"quorum:2" pattern:"^(all|any|best-effort|quorum:[1-9][0-9]{0,3})$" doc:"Of plan fan-out: whose answers it needs: all, any (the first one), quorum:K (the first K) or best-effort (those that come, at least one). The rest is cancelled. Empty: all (R20)."`
	Mentions     bool             `yaml:"mentions" default:"false" doc:"Of plan fan-out: of the participants, those are asked whom the last message mentions, as with @critic @editor; all, when it mentions none. Join is best-effort then, unless it says otherwise (C17, C18)."`
	Synthesizer  string           `yaml:"synthesizer" example:"NAME" doc:"Of plan fan-out: the participant who is told all answers, and whose own is the reply. Empty: the reply is the answers, labelled, in the order of the participants (R20)."`
	MaxTurns     int              `yaml:"max_turns" default:"10" min:"1" max:"1000000" doc:"It halts after this many turns."`
	BudgetUSD    *agentbus.Micros `yaml:"budget_usd" doc:"It pauses before the turn that would cost more than this in all, in USD. Absent: no budget of its own."`
	Halt         HaltRule         `yaml:"halt" doc:"When it is over before its turns are used up."`
	CallPolicy   CallPolicy       `yaml:"call_policy" doc:"Deadlines, retries and breakers of its calls (R10 to R12)."`
	OnHalt       OnHalt           `yaml:"on_halt" default:"pause" enum:"pause|fail" doc:"What the error of a participant, or a budget that is used up, does: pause (the run can be resumed) or fail (it is over) (R16)."`
	Approval     bool             `yaml:"approval" default:"false" doc:"A human approves each turn before its participant is called: agentbus inbox, approve, deny (R22)."`
}

// A Plan decides who speaks next (R3).
type Plan string

// The plans of this version.
const (
	PlanAlternate  Plan = "alternate"   // exactly two
	PlanRoundRobin Plan = "round-robin" // two or more
	PlanRelay      Plan = "relay"       // in order, but whom a reply mentions speaks next (C14)
	PlanModerator  Plan = "moderator"   // one names who speaks next
	PlanFanOut     Plan = "fan-out"     // all at once
)

// JoinBestEffort is the join that takes the answers that come (R20).
const JoinBestEffort = "best-effort"

// OnHalt is what a halt does that is not final by its kind (R16).
type OnHalt string

// What a halt does.
const (
	OnHaltPause OnHalt = "pause" // the run can be resumed
	OnHaltFail  OnHalt = "fail"  // it is over
)

// A HaltRule ends a conversation early.
type HaltRule struct {
	Contains string `yaml:"contains" doc:"It is over when a turn holds this text. Empty: never."`
}

// ApprovalOf reports whether a human approves the turns of a participant.
func (c *Conversation) ApprovalOf(i int) bool {
	if own := c.Participants[i].Approval; own != nil {
		return *own
	}
	return c.Approval
}

// A Participant is one speaker of a conversation.
type Participant struct {
	Agent string          `yaml:"agent" example:"NAME" required:"true" doc:"Name of the agent that speaks."`
	Auth  ParticipantAuth `yaml:"auth" default:"forward-user" enum:"forward-user|agent-owned" doc:"forward-user: the origin pays; agent-owned: the agent pays for itself (P22, R2)."`
	Slug  string          `yaml:"slug" pattern:"^[a-z0-9_-]*$" doc:"Its form in turn ids, and its name where one agent takes part more than once. Empty: the slug of the agent's name (P14, P15)."`
	Label string          `yaml:"label" doc:"The name it is shown under. Empty: its name."`
	// CallPolicy is what it says itself; [Conversation.PolicyOf] is what holds.
	CallPolicy *CallPolicy `yaml:"call_policy" doc:"What it has in place of the conversation's call_policy, field by field (R13)."`
	// Decides marks the moderator; Load makes it and Conversation.Moderator agree.
	Decides bool `yaml:"decides" default:"false" doc:"Its replies decide: a JSON object with decision, and perhaps confidence from 0 to 1, which escalates when it is low (E30). Of plan moderator it names the next speaker, with next in place of decision, and one participant does."`
	// Approval is what it says itself; [Conversation.ApprovalOf] is what holds.
	Approval *bool `yaml:"approval" doc:"A human approves each of its turns before it is called (R22). Absent: as the conversation's approval says."`

	_ later `yaml:"manifest" doc:"Agent manifest (E20, E27, E30)." instead:"nothing is read from the file, its toolAllowlist included: list the tools in tools.default, or in tools of an agent of kind openai, and remove the key"`
	_ later `yaml:"harness_role" doc:"Role of the agent in a harness (E27)." instead:"no role allows or forbids a tool: list the tools in tools.default, or in tools of an agent of kind openai, and remove the key"`
	_ later `yaml:"sharing" doc:"With whom its context is shared (E20)." instead:"a conversation's participants are told what is said in it, and share nothing else: remove the key"`
}

// Speakers returns the names under which the participants speak, in their order:
// the agent's, or its slug where one agent takes part more than once.
func (c *Conversation) Speakers() []string {
	times := map[string]int{}
	for i := range c.Participants {
		times[c.Participants[i].Agent]++
	}
	all := make([]string, len(c.Participants))
	for i := range c.Participants {
		if all[i] = c.Participants[i].Agent; times[all[i]] > 1 && c.Participants[i].Slug != "" {
			all[i] = c.Participants[i].Slug
		}
	}
	return all
}

// ParticipantAuth is whose credential travels with a participant's calls (R2).
type ParticipantAuth string

// The ways of a participant.
const (
	AuthForwardUser ParticipantAuth = "forward-user" // the origin's, so the origin pays
	AuthAgentOwned  ParticipantAuth = "agent-owned"  // none: the agent pays for itself
)
