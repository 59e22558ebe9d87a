package main

import (
	"context"
	"io"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/server/config"
)

// keysVerbs manage the API keys of the store.
type keysVerbs struct {
	Create keysCreateVerb `cmd:"" help:"Make a key for a principal. Its secret is printed once and stored nowhere."`
	List   keysListVerb   `cmd:"" help:"List the keys."`
	Revoke keysRevokeVerb `cmd:"" help:"Revoke a key, or every key of a principal."`
}

type keysCreateVerb struct {
	ID         string `arg:"" help:"The principal that the key stands for, and that pays."`
	InterAgent bool   `name:"inter-agent" help:"It may forward another's credential, so that the other pays (P20)."`
	Role       string `enum:"user,admin" default:"user" help:"user may call agents, admin may operate the bus as well."`

	Agents    []string `placeholder:"NAME" help:"The only agents it may call (G6); else every agent."`
	NoRunIDs  bool     `name:"no-run-ids" help:"It may not name runs: each of its calls is a run of its own (G6)."`
	PerSecond float64  `name:"per-second" placeholder:"N" help:"Calls a second, on average (G8); else any number."`
	Burst     int      `placeholder:"N" help:"Calls at once beyond the average; else as many as a second, rounded up."`
}

// Run makes a key and prints its secret.
func (v *keysCreateVerb) Run(ctx context.Context, a *app) error {
	if !identity.ValidID(v.ID) {
		return &failure{exit: exitUsage, what: "the principal " + harmless(v.ID) + " is no id", next: "use 1 to 128 letters, digits and . _ - : /"}
	}
	s, c, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // the key is durable, or CreateKey said so
	if prefix := c.ReservedPrefix(v.ID); prefix != "" {
		return &failure{exit: exitUsage, what: "the principals of " + prefix + " come from an issuer of the configuration (auth)", next: "choose an id that begins otherwise"}
	}
	grants, err := v.grants(c)
	if err != nil {
		return err
	}
	secret, key := identity.NewKey(agentbus.Principal{ID: v.ID, Role: agentbus.PrincipalRole(v.Role), InterAgent: v.InterAgent, Grants: grants}, time.Now())
	if err := s.Store().CreateKey(ctx, key); err != nil {
		return err
	}
	shown := secret.Reveal() //nolint:forbidigo // its owner sees it once, here (G4)
	made := map[string]any{"id": v.ID, "handle": key.Handle, "secret": shown, "role": v.Role, "inter_agent": v.InterAgent}
	if grants != nil {
		made["grants"] = grants
	}
	if !a.JSON { // beside the answer, so that $(agentbus keys create NAME) is the secret alone
		if _, err := io.WriteString(a.stderr, "key "+key.Handle+" of "+v.ID+", shown once:\n"); err != nil {
			return err
		}
	}
	if err := a.answer(made, shown+"\n"); err != nil {
		return &failure{exit: exitFailed, what: "the secret of the new key could not be printed, so nobody knows it", why: cause(err), next: "agentbus keys revoke " + key.Handle + ", and make another"}
	}
	return nil
}

// grants returns what the key may do, or nil when nothing bounds it.
func (v *keysCreateVerb) grants(c *config.Config) (*agentbus.Grants, error) {
	for _, name := range v.Agents {
		if _, ok := c.Agents[name]; !ok {
			return nil, &failure{exit: exitUsage, what: "there is no agent " + harmless(name) + " in the configuration", next: "its agents: " + names(c.Agents)}
		}
	}
	if v.Burst < 0 || !(v.PerSecond >= 0 && v.PerSecond <= maxPerSecond) || v.Burst > 0 && v.PerSecond == 0 {
		return nil, &failure{exit: exitUsage, what: "--per-second and --burst are no rate", next: "such as --per-second 0.5 --burst 10"}
	}
	if v.Agents == nil && !v.NoRunIDs && v.PerSecond == 0 {
		return nil, nil //nolint:nilnil // nothing bounds it
	}
	return &agentbus.Grants{Agents: v.Agents, NoRunIDs: v.NoRunIDs, PerSecond: v.PerSecond, Burst: v.Burst}, nil
}

const maxPerSecond = 1_000_000

type keysListVerb struct{}

// Run lists the keys, revoked ones too.
func (*keysListVerb) Run(ctx context.Context, a *app) error {
	s, c, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // only read
	keys, err := s.Store().Keys(ctx)
	if err != nil {
		return err
	}
	for _, k := range c.Keys {
		keys = append(keys, agentbus.APIKey{Handle: "(config)", Principal: k.Principal()})
	}
	rows := [][]string{{"HANDLE", "PRINCIPAL", "ROLE", "INTER-AGENT", "CREATED", "REVOKED"}}
	for _, k := range keys {
		rows = append(rows, []string{k.Handle, k.Principal.ID, string(k.Principal.Role), yes(k.Principal.InterAgent), when(k.Created), when(k.Revoked)})
	}
	if len(keys) == 0 {
		return a.answer([]agentbus.APIKey{}, "there are no keys; next: agentbus keys create NAME\n")
	}
	return a.answer(keys, a.listing(rows))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

type keysRevokeVerb struct {
	Key string `arg:"" help:"Handle of a key, or a principal."`
}

// Run revokes keys. Calls that were let in with them go on; the next one is 401.
func (v *keysRevokeVerb) Run(ctx context.Context, a *app) error {
	s, _, err := a.opened(ctx)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // the revocation is durable, or RevokeKey said so
	n, err := s.Store().RevokeKey(ctx, v.Key)
	if err != nil {
		return err
	}
	if n == 0 {
		return &failure{exit: exitUsage, what: "no key in force is called " + harmless(v.Key), next: "see agentbus keys list; a key of the configuration is revoked by taking it out there"}
	}
	return a.answer(map[string]any{"revoked": n}, "revoked "+plural(n, "key")+"\n")
}
