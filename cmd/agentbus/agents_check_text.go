package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
)

// checkText is a report as people read it: the verdict, what the card says, what
// is worth knowing, and what to paste.
func checkText(c *checkedAgent) string {
	var b strings.Builder
	verdict := "this bus can call it"
	if !c.Usable {
		verdict = "this bus cannot call it"
	}
	b.WriteString(cmp.Or(strings.TrimSpace(short(c.Name)+" "+short(c.Version)), "the agent") + ": " + verdict + "\n")
	if c.Description != "" {
		b.WriteString("  " + short(c.Description) + "\n")
	}
	b.WriteString("\n" + table(aboutRows(c)))
	if len(c.Interfaces) > 0 {
		b.WriteString("\n" + table(interfaceRows(c)))
	}
	if len(c.Extensions) > 0 {
		b.WriteString("\n" + table(extensionRows(c)))
	}
	if len(c.Schemes) > 0 {
		b.WriteString("\n" + table(schemeRows(c)))
	}
	if len(c.Findings) > 0 {
		b.WriteString("\n")
	}
	for _, f := range c.Findings {
		mark := "note: "
		if f.Blocks {
			mark = "FAULT: "
		}
		b.WriteString(mark + long(f.What) + "\n")
		if f.Next != "" {
			b.WriteString("  next: " + long(f.Next) + "\n")
		}
	}
	if c.Config != "" {
		b.WriteString("\nfor agentbus.yaml:\n\n" + c.Config)
	}
	return b.String()
}

func aboutRows(c *checkedAgent) [][]string {
	shapes := map[string]string{"1.0": "A2A 1.0", "0.3": "A2A 0.3, deprecated", "1.0 and 0.3": "A2A 1.0, and 0.3 beside it", "address": "of its address, not of A2A"}
	rows := [][]string{{"card", c.URL}}
	if c.Address != "" {
		rows = append(rows, []string{"address", c.Address})
	}
	push := yes(c.Push)
	if c.Push {
		push += ", which goes past the bus: refused unless a2a.push lets it"
	}
	signatures := strconv.Itoa(c.Signatures)
	if c.Signatures > 0 {
		signatures += ", not verified here, and left out of the card that the bus shows"
	}
	return append(rows,
		[]string{"shape", shapes[c.Shape]}, []string{"streaming", yes(c.Streaming)}, []string{"push", push}, []string{"extended card", yes(c.Extended)},
		[]string{"skills", strconv.Itoa(c.Skills)}, []string{"signatures", signatures}, []string{"asks for", asks(c)})
}

// asks are the alternatives of what a caller needs.
func asks(c *checkedAgent) string {
	if len(c.Required) == 0 {
		return "nothing"
	}
	var all []string
	for i, names := range c.Required {
		text := strings.Join(names, " and ")
		if text == "" {
			text = "nothing"
		}
		if i == c.Chosen && len(c.Required) > 1 {
			text += " (which the bus uses)"
		}
		all = append(all, text)
	}
	return short(strings.Join(all, ", or "))
}

func interfaceRows(c *checkedAgent) [][]string {
	rows := [][]string{{"BINDING", "VERSION", "WE CAN", "URL", "WHY"}}
	for _, f := range c.Interfaces {
		can := yes(f.Usable)
		if f.Called {
			can = "yes, this"
		}
		why := f.Why
		if f.Tenant != "" {
			why = strings.TrimPrefix(why+"; tenant "+f.Tenant, "; ")
		}
		rows = append(rows, []string{dash(short(f.Binding)), dash(short(f.Version)), can, dash(short(f.URL)), short(why)})
	}
	return rows
}

func extensionRows(c *checkedAgent) [][]string {
	rows := [][]string{{"EXTENSION", "REQUIRED", "WE KNOW IT"}}
	for _, x := range c.Extensions {
		known := "no"
		if x.Known != "" {
			known = "yes: " + x.Known
		}
		rows = append(rows, []string{dash(short(x.URI)), yes(x.Required), known})
	}
	return rows
}

func schemeRows(c *checkedAgent) [][]string {
	rows := [][]string{{"SECURITY", "WHAT", "WE CAN", "HOW"}}
	for _, s := range c.Schemes {
		how := map[string]string{
			a2a.GiveKey: "api_key_env names the variable with the token", a2a.GiveHeader: "headers holds the key, from a variable", a2a.GiveCookie: "headers holds the cookie, from a variable",
		}[s.Give]
		if s.Note != "" {
			how = strings.TrimPrefix(how+"; "+s.Note, "; ")
		}
		rows = append(rows, []string{short(s.Name), dash(short(s.How)), yes(s.Give != ""), how})
	}
	return rows
}

// short is text of a card in one line, and not more of it than a line holds;
// long lets a sentence pass.
func short(s string) string { return cut(s, 160) }
func long(s string) string  { return cut(s, 600) }

func cut(s string, most int) string {
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// agentLines are the lines that make the agent one of the configuration.
func agentLines(r *a2a.CardReport) string {
	name := agentbus.Speaker(r.Name).Slug()
	if r.Name == "" || name[0] == '-' || name[0] == '_' {
		name = "agent"
	}
	name = strings.TrimSuffix(name[:min(len(name), 64)], "-")
	variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_KEY"
	if variable[0] >= '0' && variable[0] <= '9' {
		variable = "AGENT_" + variable
	}
	var b strings.Builder
	fmt.Fprintf(&b, "agents:\n  %s:\n    kind: a2a\n    url: %s\n", name, plainYAML(baseOf(r)))
	given := map[string]string{}
	if r.Chosen >= 0 {
		for _, s := range r.Schemes {
			for _, need := range r.Required[r.Chosen] {
				if s.Name == need {
					given[s.Give] = s.Header
				}
			}
		}
	}
	if _, key := given[a2a.GiveKey]; key {
		fmt.Fprintf(&b, "    api_key_env: %s\n", variable)
	}
	header, inHeader := given[a2a.GiveHeader]
	cookie, inCookie := given[a2a.GiveCookie]
	if inHeader || inCookie {
		b.WriteString("    headers:\n")
	}
	if inHeader {
		fmt.Fprintf(&b, "      %s: ${%s}\n", plainYAML(header), variable)
	}
	if inCookie {
		fmt.Fprintf(&b, "      Cookie: %s\n", strconv.Quote(cookie+"=${"+variable+"}"))
	}
	for _, f := range r.Interfaces {
		if f.Called && f.Compat {
			b.WriteString("a2a:\n  compat: \"0.3\"\n")
		}
	}
	return b.String()
}

// baseOf is the base of the agent, below which the bus looks for its card.
func baseOf(r *a2a.CardReport) string {
	if base, ok := strings.CutSuffix(r.URL, a2a.CardPath); ok || !strings.HasSuffix(r.URL, ".json") {
		return base
	}
	return r.URL[:strings.LastIndexByte(r.URL, '/')]
}

var plainRE = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9:/._~-]*[A-Za-z0-9/_~-]$`)

// plainYAML is s as a value of a YAML file.
func plainYAML(s string) string {
	if plainRE.MatchString(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}
