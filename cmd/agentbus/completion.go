package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/server"
)

// completionVerb prints what teaches a shell to complete this program.
type completionVerb struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish. For a try: source <(agentbus completion bash); in fish: agentbus completion fish | source."`
}

//go:embed completion.bash
var completionBash string

//go:embed completion.zsh
var completionZsh string

//go:embed completion.fish
var completionFish string

// Run prints the script, which asks this program at every TAB: what it completes
// is the table of verbs itself.
func (v *completionVerb) Run(a *app) error {
	_, err := io.WriteString(a.stdout, map[string]string{"bash": completionBash, "zsh": completionZsh, "fish": completionFish}[v.Shell])
	return err
}

// completeVerb is asked by the scripts of [completionVerb], and by nobody else.
type completeVerb struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"What was typed behind the name of the program; the last word is completed."`
}

// A candidate is a word that could stand where somebody types.
type candidate struct{ word, help string }

const (
	filesFollow     = ":files"        // in place of candidates: the shell knows files better
	completeTimeout = 2 * time.Second // a TAB is not worth more
	mostCandidates  = 100             // of runs, and of what they wait for
)

// Run prints candidates, a line each, with a tab before what it is. Whatever goes
// wrong, there are none: a TAB says nothing.
func (v *completeVerb) Run(ctx context.Context, a *app) error {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	words := v.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	parser, err := kong.New(&cli{}, kong.Name("agentbus"))
	if err != nil || len(words) == 0 {
		return err
	}
	a.stderr = io.Discard // warnings of the configuration, too
	c := completion{app: a, node: parser.Model.Node}
	for _, one := range c.of(ctx, words) {
		if line := harmless(one.word); line == one.word && !strings.ContainsAny(line, "\n\t") {
			fmt.Fprintf(a.stdout, "%s\t%s\n", line, strings.Join(strings.Fields(harmless(one.help)), " ")) //nolint:errcheck // nobody is left to tell
		}
	}
	return nil
}

// A completion walks the words that were typed.
type completion struct {
	*app
	node       *kong.Node
	positional int // arguments of node so far
}

// of returns the candidates for the last of words.
func (c *completion) of(ctx context.Context, words []string) []candidate {
	words, split := joined(words)
	last := words[len(words)-1]
	var pending *kong.Flag
	for _, w := range words[:len(words)-1] {
		pending = c.walk(w, pending)
	}
	if name, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(last, "--") {
		f := c.flag(name)
		if f == nil {
			return nil
		}
		if split {
			name = ""
		} else {
			name += "="
		}
		return starting(value, c.values(ctx, f.Value), name)
	}
	switch {
	case pending != nil:
		return starting(last, c.values(ctx, pending.Value), "")
	case strings.HasPrefix(last, "-"):
		return starting(last, c.flags(), "")
	case len(c.node.Positional) > c.positional && len(c.node.Children) == 0:
		return starting(last, c.values(ctx, c.node.Positional[c.positional]), "")
	}
	return starting(last, c.verbs(), "")
}

// joined puts --flag=value together again, which bash takes apart; split reports
// whether it did so with the last word.
func joined(words []string) (out []string, split bool) {
	for i := 0; i < len(words); i++ {
		if words[i] == "=" && len(out) > 0 && strings.HasPrefix(out[len(out)-1], "--") {
			out[len(out)-1] += "="
			split = i >= len(words)-2
			if i++; i < len(words) {
				out[len(out)-1] += words[i]
			}
			continue
		}
		out = append(out, words[i])
	}
	return out, split
}

// walk goes on by a word that is complete. It returns the flag whose value the
// next word is.
func (c *completion) walk(word string, pending *kong.Flag) *kong.Flag {
	if pending != nil {
		c.learn(pending.Name, word)
		return nil
	}
	if name, value, ok := strings.Cut(word, "="); strings.HasPrefix(word, "-") {
		f := c.flag(name)
		if f == nil || f.IsBool() {
			return nil
		}
		if ok {
			c.learn(f.Name, value)
			return nil
		}
		return f
	}
	for _, child := range c.node.Children {
		if child.Name == word {
			c.node, c.positional = child, 0
			return nil
		}
	}
	if c.positional+1 < len(c.node.Positional) || len(c.node.Positional) > 0 && !c.node.Positional[len(c.node.Positional)-1].IsCumulative() {
		c.positional++
	}
	return nil
}

// learn notes the configuration that was named: what it holds is completed.
func (c *completion) learn(flag, value string) {
	if flag == "config" {
		c.ConfigFile = value
	}
}

func (c *completion) allFlags() (all []*kong.Flag) {
	for n := c.node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if !f.Hidden {
				all = append(all, f)
			}
		}
	}
	return all
}

func (c *completion) flag(name string) *kong.Flag {
	for _, f := range c.allFlags() {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

func (c *completion) flags() (all []candidate) {
	for _, f := range c.allFlags() {
		all = append(all, candidate{"--" + f.Name, f.Help})
	}
	return all
}

func (c *completion) verbs() (all []candidate) {
	for _, child := range c.node.Children {
		if !child.Hidden {
			all = append(all, candidate{child.Name, child.Help})
		}
	}
	return all
}

// values are what a flag or an argument may be, by its tag complete.
func (c *completion) values(ctx context.Context, v *kong.Value) (all []candidate) {
	if v.Enum != "" {
		for _, word := range v.EnumSlice() {
			all = append(all, candidate{word, ""})
		}
		return all
	}
	switch v.Tag.Get("complete") {
	case "agent", "conversation":
		c.storeOnly = true
		cfg, err := c.load()
		if err != nil {
			return nil
		}
		if v.Tag.Get("complete") == "agent" {
			for _, name := range slices.Sorted(maps.Keys(cfg.Agents)) {
				all = append(all, candidate{name, string(cfg.Agents[name].Kind)})
			}
			return all
		}
		for name := range cfg.Conversations {
			one := cfg.Conversations[name]
			all = append(all, candidate{name, strings.Join(one.Speakers(), ", ")})
		}
		return all
	case "key":
		return c.keys()
	case "run", "interrupt":
		return c.stored(ctx, v.Tag.Get("complete"))
	case "file":
		return []candidate{{filesFollow, ""}}
	}
	return nil
}

// keys are those of the configuration in force, with their values.
func (c *completion) keys() (all []candidate) {
	c.storeOnly = true
	cfg, err := c.load()
	if err != nil {
		return nil
	}
	for _, s := range cfg.Settings() {
		all = append(all, candidate{s.Key, s.Value})
	}
	return all
}

// stored reads runs, or what they wait for, where a store is there and of this
// version.
func (c *completion) stored(ctx context.Context, what string) (all []candidate) {
	c.storeOnly = true
	cfg, err := c.load()
	if err != nil {
		return nil
	}
	if _, err := os.Stat(cfg.Store.SQLite); err != nil && cfg.Store.SQLite != "" {
		return nil
	}
	if version, newest, err := server.Schema(ctx, cfg); err != nil || version != newest {
		return nil
	}
	s, err := c.open(ctx, server.Config{Config: cfg})
	if err != nil {
		return nil
	}
	defer s.Close() //nolint:errcheck // only read
	if what == "interrupt" {
		waiting, _ := s.Store().Interrupts(ctx, agentbus.InterruptQuery{Limit: mostCandidates}) // none is no candidate
		for _, i := range waiting {
			all = append(all, candidate{string(i.ID), i.Ask.Title})
		}
		return all
	}
	runs, _ := s.Store().RunSummaries(ctx, agentbus.RunFilter{}, mostCandidates, "") // none is no candidate
	for _, r := range runs {
		all = append(all, candidate{string(r.Run), stateOf(&r) + " " + whatOf(&r)})
	}
	return all
}

// starting are the candidates that begin with what was typed, in order, behind
// what stands before them in the word.
func starting(typed string, all []candidate, before string) (found []candidate) {
	for _, one := range all {
		if one.word == filesFollow || strings.HasPrefix(one.word, typed) {
			if one.word != filesFollow {
				one.word = before + one.word
			}
			found = append(found, one)
		}
	}
	slices.SortStableFunc(found, func(x, y candidate) int { return cmp.Compare(x.word, y.word) })
	return found
}
