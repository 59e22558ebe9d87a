package agentbus

// The types of events that the event wire has words for (E11). A reader ignores
// a type it does not know; what the wire has no word for is called agentbus.*.
const (
	EventRunStarted   = "run.started"
	EventRunCompleted = "run.completed"
	EventRunFailed    = "run.failed"
	EventRunCancelled = "run.cancelled"
	EventRunPaused    = "run.paused"
	EventRunResumed   = "run.resumed"

	EventNodeStarted    = "node.started"
	EventNodeCompleted  = "node.completed"
	EventNodeFailed     = "node.failed"
	EventNodeRetried    = "node.retried"
	EventNodeCancelled  = "node.cancelled"
	EventNodeSuspended  = "node.suspended"
	EventNodeResumed    = "node.resumed"
	EventNodeDispatched = "node.dispatched"

	EventWaitRequested = "interrupt.requested"
	EventWaitResolved  = "interrupt.resolved"

	EventProviderUsage   = "provider.usage"
	EventChannelWritten  = "channel.written"
	EventVariableChanged = "variable.changed"
	EventOutputChunk     = "output.chunk"
	EventLogAppended     = "log.appended"
	EventCapBreached     = "cap.breached"
	EventReplayDiverged  = "replay.diverged"

	EventAgentReasoned       = "agent.reasoned"
	EventAgentReasoningDelta = "agent.reasoning.delta"
	EventAgentToolCalled     = "agent.toolCalled"
	EventAgentToolReturned   = "agent.toolReturned"
	EventAgentHandoff        = "agent.handoff"
	EventAgentDecided        = "agent.decided"
	EventInvocationStarted   = "agent.invocation.started"
	EventInvocationCompleted = "agent.invocation.completed"

	EventConversationOpened    = "conversation.opened"
	EventConversationExchanged = "conversation.exchanged"
	EventConversationClosed    = "conversation.closed"

	EventOrchestratorDecided = "runOrchestrator.decided"
	EventWorkflowChain       = "core.workflowChain.event"
	EventChainEscalated      = "core.workflowChain.confidence-escalated"

	EventEscalationSuppressed = "agentbus.escalation.suppressed"
	EventJoined               = "agentbus.fanout.joined" // all branches of a fan-out are final; their events come before
	// EventMentionRefused tells that the turn before it mentioned somebody and may
	// call nobody: its hop is the last, or its depth (C8).
	EventMentionRefused = "agentbus.mention.refused"
	EventRunWaiting     = "agentbus.run.waiting" // a conversation is parked on interrupts: its nodes are suspended
)

// Terminal reports whether an event of this type ends its run: there is exactly
// one, and it is the last (E10).
func Terminal(eventType string) bool {
	switch eventType {
	case EventRunCompleted, EventRunFailed, EventRunCancelled:
		return true
	}
	return false
}
