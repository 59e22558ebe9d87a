package main

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// What the linker sets in releases, which know nothing else of where they come
// from (deploy/release):
//
//	go build -ldflags "-X main.linkedVersion=1.2.3" ./cmd/agentbus
var linkedVersion, linkedRevision, linkedTime string

// versionVerb tells which build this is.
type versionVerb struct{}

// A build says which program this is and what it was made of.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source; "" when the build did not know
	Time     string `json:"time,omitempty"`     // of the revision, RFC 3339
	Modified bool   `json:"modified,omitempty"` // the source was changed after the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol string `json:"protocol"` // version of the protocol on the wire (P25)
}

// Run prints the build.
func (*versionVerb) Run(a *app) error {
	b := thisBuild()
	return a.answer(b, b.String()+"\n")
}

// thisBuild tells which build this program is.
func thisBuild() build {
	info, _ := debug.ReadBuildInfo()
	return newBuild(info, build{Version: linkedVersion, Revision: linkedRevision, Time: linkedTime})
}

// newBuild completes what the linker knows with what the toolchain does (info,
// which may be nil).
func newBuild(info *debug.BuildInfo, b build) build {
	b.Go, b.Platform, b.Protocol = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, "0"
	if info != nil {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = strings.TrimPrefix(info.Main.Version, "v")
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "development"
	}
	return b
}

// String returns the build on one line.
func (b build) String() string {
	s := "agentbus " + b.Version + ", protocol " + b.Protocol + " (" + b.Go + " " + b.Platform
	if b.Revision != "" {
		s += ", revision " + b.Revision[:min(len(b.Revision), 12)]
	}
	if b.Modified {
		s += ", modified"
	}
	return s + ")"
}
