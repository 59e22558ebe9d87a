package agentbus

// Enclosing returns, for each of some turns of one run in the order in which they
// began, the index of the one inside which it was made; -1: none of those before
// it. A runtime that sends no path names the turn alone.
func Enclosing(turns []TurnKey) []int {
	type place struct {
		path string
		turn TurnID
	}
	first := map[place]int{}
	inside := make([]int, len(turns))
	for i, k := range turns {
		inside[i] = -1
		if at, ok := first[place{k.Path, k.Parent}]; ok && k.Parent != "" {
			inside[i] = at
		}
		if k.ID == "" {
			continue
		}
		for _, p := range [...]place{{k.PathBelow(), k.ID}, {"", k.ID}} {
			if _, taken := first[p]; !taken {
				first[p] = i
			}
		}
	}
	return inside
}

// Common returns how many turns two transcripts have in common, from their
// beginning: who spoke, and what was said.
func Common(a, b []Turn) int {
	n := 0
	for n < min(len(a), len(b)) && alike(&a[n], &b[n]) {
		n++
	}
	return n
}

func alike(a, b *Turn) bool {
	return a.Speaker == b.Speaker && a.Reply.Text == b.Reply.Text && a.Reply.Reasoning == b.Reply.Reasoning && len(a.Reply.ToolCalls) == len(b.Reply.ToolCalls)
}
