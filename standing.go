package agentbus

// A Standing is the one word for how a run stands, whoever drives it.
type Standing string

// How runs stand.
const (
	StandingRunning Standing = "running"
	StandingWaiting Standing = "waiting" // for a human, or for the credential of its payer
	StandingRefused Standing = "refused" // its first call was, and nobody drives it
	StandingFailed  Standing = "failed"
	StandingPaused  Standing = "paused"  // resuming it goes on
	StandingStopped Standing = "stopped" // by an operator, or its first call by its caller, who left
	StandingDone    Standing = "done"
)

// Standings returns the words there are.
func Standings() []Standing {
	return []Standing{StandingRunning, StandingWaiting, StandingRefused, StandingFailed, StandingPaused, StandingStopped, StandingDone}
}

// Standing returns how the run stands. One that no driver of its store performs
// stands as its first call does, unless something below asks: then it waits. Stores say the same of a run when they list
// those that stand in one way ([RunFilter]).
func (s *RunSummary) Standing() Standing {
	switch {
	case s.Stopper != "":
		return StandingStopped
	case s.State == RunRunning, s.State == "" && s.Live > 0:
		return StandingRunning
	case s.State == RunPaused && s.Halt != nil && (s.Halt.Kind == HaltWaiting || s.Halt.Kind == HaltWaitingAuth), s.State == "" && s.Asks > 0:
		return StandingWaiting
	case s.State == RunPaused:
		return StandingPaused
	case s.State == "" && s.Left:
		return StandingStopped
	case s.State == RunDone && s.Halt != nil && s.Halt.Failed, s.State == "" && s.First == CallVoided:
		return StandingFailed
	case s.State == "" && s.First == CallRefused:
		return StandingRefused
	}
	return StandingDone
}

// A RunFigure is a number of a run that lists of runs are sorted by, and may ask
// a least value of.
type RunFigure string

// The figures of runs.
const (
	FigureCost     RunFigure = "cost"  // charged, and held by calls in flight; micros
	FigureSaved    RunFigure = "saved" // micros
	FigureTurns    RunFigure = "turns" // done, and calls that were made
	FigureDepth    RunFigure = "depth"
	FigureTokens   RunFigure = "tokens" // in and out
	FigureRetries  RunFigure = "retries"
	FigureRefusals RunFigure = "refusals"
	FigureDuration RunFigure = "duration" // from the beginning to what happened last; microseconds
	FigureLast     RunFigure = "last"     // when something happened last; microseconds since 1970
	FigureBegan    RunFigure = "began"    // microseconds since 1970
)

// RunFigures returns the figures there are.
func RunFigures() []RunFigure {
	return []RunFigure{
		FigureCost, FigureSaved, FigureTurns, FigureDepth, FigureTokens, FigureRetries, FigureRefusals, FigureDuration, FigureLast, FigureBegan,
	}
}

// Figure returns a figure of the run; 0: there is none of that name.
func (s *RunSummary) Figure(f RunFigure) int64 {
	switch f {
	case FigureCost:
		return int64(s.Cost + s.Held)
	case FigureSaved:
		return int64(s.Saved)
	case FigureTurns:
		return int64(s.Turns + s.Calls)
	case FigureDepth:
		return int64(s.MaxDepth)
	case FigureTokens:
		return s.Usage.InputTokens + s.Usage.OutputTokens
	case FigureRetries:
		return int64(s.Retries)
	case FigureRefusals:
		return int64(s.Refusals)
	case FigureDuration:
		return s.Last.Sub(s.Began).Microseconds()
	case FigureLast:
		return s.Last.UnixMicro()
	case FigureBegan:
		return s.Began.UnixMicro()
	}
	return 0
}
