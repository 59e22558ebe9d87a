package execagent_test

import (
	"fmt"
	"os"

	"github.com/agentbus/agentbus/execagent"
)

// A program that has agents of kind exec is their supervisor, too: main looks for
// the argument that says so before it does anything else.
func ExampleSupervise() {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		os.Exit(execagent.Supervise(os.Args[2:]))
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Println(err)
		return
	}
	config := execagent.Config{ // server.Config has a Supervisor, too
		Name: "research", Command: []string{"./research.sh"},
		Supervisor: []string{self, "supervise"},
	}
	fmt.Println(config.Name, len(config.Supervisor))
	// Output: research 2
}
