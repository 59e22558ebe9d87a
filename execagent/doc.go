// Package execagent makes an agent of a program: a script, or a command-line
// agent such as claude or codex (B1 to B6).
//
// A turn is a process. It gets the prompt on its standard input, or as its last
// argument, and what it writes is its answer. It runs below a supervisor, which
// is this binary again ([Supervise]): a process that sees to it that nothing
// the program started outlives the turn, and that ends with the bus however the
// bus ends.
package execagent
