package main

import (
	"net/http"
	"time"
)

// maxSkew is how much the clocks of two machines may differ before it is told:
// tokens and certificates are refused for it.
const maxSkew = 30 * time.Second

// clock looks at what can be known of the clock without asking anybody.
func (d *doctor) clock() {
	now := time.Now()
	made, err := time.Parse(time.RFC3339, thisBuild().Time)
	switch synchronised, known := clockSynchronised(); {
	case err == nil && now.Before(made):
		d.find(checkClock, "", levelFault, "it is "+when(now)+" here, before this program was made, at "+when(made), "set the clock of this machine, and let NTP keep it")
	case known && !synchronised:
		d.find(checkClock, "", levelWarning, "the kernel says that nobody keeps the clock of this machine right", "let chrony, systemd-timesyncd or ntpd do it")
	default:
		d.find(checkClock, "", levelOK, "it is "+when(now), "")
	}
}

// clockOf compares the clock of who answered with ours. An answer is as old as it
// took, and its time is in whole seconds.
func (d *doctor) clockOf(host string, resp *http.Response, began time.Time) {
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	now := time.Now()
	skew := theirs.Sub(now)
	if theirs.After(began.Add(-time.Second)) && theirs.Before(now.Add(time.Second)) || skew.Abs() <= maxSkew {
		return
	}
	ahead := "ahead of"
	if skew < 0 {
		ahead = "behind"
	}
	d.find(checkClock, host, levelWarning, "its clock is "+skew.Abs().Round(time.Second).String()+" "+ahead+" ours", "let NTP keep both: tokens and certificates are judged by the clock")
}
