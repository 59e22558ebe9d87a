//go:build !unix

package server_test

import "time"

// processorTime is not measured here.
func processorTime() time.Duration { return 0 }
