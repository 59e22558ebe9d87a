package openwop

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentbus/agentbus"
)

// A Workflow is the definition of a run: nodes, and edges that say which one comes
// next. Edges may lead back (E41).
type Workflow struct {
	ID        string             `json:"id"`
	Name      string             `json:"name"`
	Version   string             `json:"version"`
	Nodes     []Node             `json:"nodes"`
	Edges     []Edge             `json:"edges"`
	Triggers  []Trigger          `json:"triggers"`
	Variables []Variable         `json:"variables"`
	Channels  map[string]Channel `json:"channels,omitempty"`
	Metadata  Metadata           `json:"metadata"`
	Settings  struct{}           `json:"settings"`
}

type (
	// A Node is one step of a workflow.
	Node struct {
		ID       string             `json:"id"`
		TypeID   string             `json:"typeId"`
		Name     string             `json:"name"`
		Position Place              `json:"position"`
		Config   json.RawMessage    `json:"config"`
		Inputs   struct{}           `json:"inputs"`
		Agent    *agentbus.AgentRef `json:"agent,omitempty"`
	}
	// A Place is where a node is drawn.
	Place struct {
		X int `json:"x"`
		Y int `json:"y"`
	}
	// An Edge leads from a node to the next.
	Edge struct {
		ID     string `json:"id"`
		Source string `json:"sourceNodeId"`
		Target string `json:"targetNodeId"`
	}
	// A Trigger says how a run is begun.
	Trigger struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	// A Variable is one that a run has from its beginning.
	Variable struct {
		Name    string          `json:"name"`
		Type    string          `json:"type"`
		Default json.RawMessage `json:"defaultValue,omitempty"`
	}
	// A Channel is a place that nodes write to in turn.
	Channel struct {
		Reducer string `json:"reducer"`
	}
	// Metadata is what a definition says of itself. The agent it requires is that
	// of E72's fixture for hand-over schemas.
	Metadata struct {
		Tags          []string `json:"tags,omitempty"`
		RequiresAgent string   `json:"requiresAgentId,omitempty"`
	}
)

// conformancePrefix begins the id of every workflow that may use the node types
// of the conformance profile (E70).
const conformancePrefix = "conformance-"

// check reports what is wrong with a definition: a node whose type there is not, an
// edge to nowhere, a mock agent outside of the conformance profile (E70). Cycles
// are no fault (E41).
func (w *Workflow) check() error {
	known := map[string]bool{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if known[n.ID] || n.ID == "" {
			return fmt.Errorf("workflow %s: two nodes are called %q", w.ID, n.ID)
		}
		known[n.ID] = true
		if performer(n.TypeID) == nil {
			return fmt.Errorf("workflow %s: there is no node type %q", w.ID, n.TypeID)
		}
		if strings.HasPrefix(n.TypeID, "core.conformance.") && !strings.HasPrefix(w.ID, conformancePrefix) {
			return fmt.Errorf("workflow %s: node type %s is for conformance only", w.ID, n.TypeID)
		}
		if n.Agent != nil && !n.Agent.Valid() {
			return fmt.Errorf("workflow %s: node %s has no valid agent", w.ID, n.ID)
		}
	}
	for _, e := range w.Edges {
		if !known[e.Source] || !known[e.Target] {
			return fmt.Errorf("workflow %s: edge %s leads to no node", w.ID, e.ID)
		}
	}
	return nil
}

// definition identifies what a run is made of (R15).
func (w *Workflow) definition() agentbus.Digest {
	b, _ := json.Marshal(w) // structs of strings
	return sha256.Sum256(b)
}

// next returns the node that comes now, "" when there is none: one that was begun
// is finished first. A node may begin when each edge to it has been passed once
// more than it was begun; the first node of a cycle is where a run enters, and is
// begun once for nothing.
func (w *Workflow) next(began, done map[string]int) *Node {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; began[n.ID] > done[n.ID] {
			return n
		}
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		free, edges := 0, 0
		if i == 0 {
			free = 1
		}
		ready := true
		for _, e := range w.Edges {
			if e.Target == n.ID {
				edges++
				ready = ready && done[e.Source]+free > began[n.ID]
			}
		}
		if edges == 0 {
			ready = began[n.ID] == 0
		}
		if ready {
			return n
		}
	}
	return nil
}
