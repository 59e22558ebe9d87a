package agentbus

import "strings"

// A ModelClass says what kind of model an agent is, in the words of the event
// wire (E20).
type ModelClass string

// The model classes of the event wire.
const (
	ModelReasoning      ModelClass = "reasoning"
	ModelToolUsing      ModelClass = "tool-using"
	ModelChat           ModelClass = "chat"
	ModelCode           ModelClass = "code"
	ModelVision         ModelClass = "vision"
	ModelMultimodal     ModelClass = "multimodal"
	ModelEmbedding      ModelClass = "embedding"
	ModelClassification ModelClass = "classification"
	ModelRetrieval      ModelClass = "retrieval"
)

// An AgentRef says which agent acted (E20). It is closed: the wire knows no
// other member. At most one of Version and Channel is set.
type AgentRef struct {
	AgentID          string     `json:"agentId"` // 3 to 256 characters
	Name             string     `json:"name,omitempty"`
	ModelClass       ModelClass `json:"modelClass,omitempty"`
	MemoryRef        string     `json:"memoryRef,omitempty"`
	Version          string     `json:"version,omitempty"`
	Channel          string     `json:"channel,omitempty"`
	SourceManifestID string     `json:"sourceManifestId,omitempty"`
}

// SystemAgent is the id under which what no agent said is reported (E21).
const SystemAgent = "core.system"

// HostAgent returns the AgentRef of a participant without a manifest (E21).
func HostAgent(s Speaker) AgentRef {
	return AgentRef{AgentID: "host:" + s.Slug(), Name: string(s)}
}

// PeerAgent returns the id of an agent of another host, such as
// host:a2a:example.com:critic. A URL is never an agent id (E21).
func PeerAgent(host, agent string) string {
	id := "host:a2a:" + host + ":" + Speaker(agent).Slug()
	if len(id) > maxAgentID {
		id = id[:maxAgentID]
	}
	return id
}

// The lengths of an agent id, in bytes.
const (
	minAgentID = 3
	maxAgentID = 256
)

// Valid reports whether r can be sent: its id has a length the wire accepts and
// it does not pin a version and a channel at once.
func (r AgentRef) Valid() bool {
	return len(r.AgentID) >= minAgentID && len(r.AgentID) <= maxAgentID && (r.Version == "" || r.Channel == "")
}

// ManifestID reports whether id may stand in a manifest: a reserved scope and at
// least two dots' worth of names behind it; host: is for running agents only
// (E21).
func ManifestID(id string) bool {
	parts := strings.Split(id, ".")
	if len(parts) < 3 || len(id) > maxAgentID {
		return false
	}
	switch parts[0] {
	case "core", "vendor", "community", "private", "local":
	default:
		return false
	}
	for i, p := range parts[1:] {
		if p == "" || p[0] < 'a' || p[0] > 'z' || strings.Trim(p, manifestLetters(i)) != "" {
			return false
		}
	}
	return true
}

// manifestLetters are those that the i-th name behind the scope may have.
func manifestLetters(i int) string {
	const lower = "abcdefghijklmnopqrstuvwxyz0123456789_-"
	if i == 0 {
		return lower
	}
	return lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
}
