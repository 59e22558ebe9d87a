module github.com/agentbus/agentbus

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/text v0.43.0
)

require pgregory.net/rapid v1.3.0
