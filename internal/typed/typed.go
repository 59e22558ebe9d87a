// Package typed writes commands that are told to users, for their shells to read.
package typed

import (
	"slices"
	"strings"
)

// Word is s as one word of a shell: what begins with # is a comment, and with = the path
// of a command for zsh.
func Word(s string) string {
	if s != "" && !strings.ContainsRune("-#=", rune(s[0])) && strings.IndexFunc(s, func(r rune) bool { return !isPlain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func isPlain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:#@%+=", r)
}

// Operand is s as the last word of a command of ours, and not a flag of it. Flags
// stand behind it where they may.
func Operand(s string, flags ...string) string {
	if strings.HasPrefix(s, "-") {
		return strings.Join(append(slices.Clone(flags), "--", Word(s)), " ")
	}
	return strings.Join(append([]string{Word(s)}, flags...), " ")
}
