package config

import (
	"time"

	"github.com/agentbus/agentbus"
)

// A Budget bounds what calls may come to, in money, number or time.
type Budget struct {
	Payer    agentbus.Payer   `yaml:"payer" pattern:"^([!#-+\\x2d-~]{1,128})?$" doc:"Whose calls, by who is billed. Empty: every payer, each with an account of its own. A budget that names one stands in place of one for all of the same period."`
	Caller   string           `yaml:"caller" pattern:"^([!#-+\\x2d-~]{1,128})?$" doc:"Whose calls, by who sends them. Empty: whoever does."`
	Period   Period           `yaml:"period" required:"true" enum:"run|hour|day|month|total" doc:"run (one run with all its nested calls), hour, day, month (of UTC) or total."`
	USD      *agentbus.Micros `yaml:"usd" doc:"Most that may be spent in a period, in USD. Absent: any amount."`
	Calls    int              `yaml:"calls" default:"0" min:"0" max:"999999999" doc:"Most calls that may be executed in a period; 0: any number."`
	WallTime time.Duration    `yaml:"wall_time" default:"0s" min:"0s" doc:"For period run: how long after its first call another may begin; 0s: any time."`
	Mode     BudgetMode       `yaml:"mode" default:"strict" enum:"strict|soft" doc:"strict: what a call can cost at most is held before it is made, and usd is never overshot. soft: calls are refused once usd is spent; those in flight may overshoot it."`
}

// A Period is the window of a budget.
type Period string

// The periods.
const (
	PeriodRun   Period = "run"
	PeriodHour  Period = "hour"
	PeriodDay   Period = "day"
	PeriodMonth Period = "month"
	PeriodTotal Period = "total"
)

// A BudgetMode says whether a budget may be overshot.
type BudgetMode string

// The modes of a budget.
const (
	BudgetStrict BudgetMode = "strict" // never
	BudgetSoft   BudgetMode = "soft"   // by the calls in flight
)
