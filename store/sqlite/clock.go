package sqlite

import (
	"strconv"
	"strings"
	"time"
)

// A clock is what leases go by (R17): the time that has passed since the
// machine was started, counted from what the wall clock said when the first
// process opened the store since then. All processes of a machine share it, and
// it does not jump when somebody sets the wall clock. It stands still while the
// machine sleeps: a driver that slept with it keeps its lease.
type clock struct {
	wall   func() time.Time
	uptime func() time.Duration // nil: the system has none that processes share, and the wall clock must do
	zero   time.Time            // when uptime was 0, by this clock
}

// now returns the time by the clock.
func (c *clock) now() time.Time {
	if c.uptime == nil {
		return c.wall()
	}
	return c.zero.Add(c.uptime())
}

// loadClock finds the clock that the processes of this machine share, or makes
// it when the machine has been started since. No driver outlives its machine:
// leases of before are over then.
func (s *Store) loadClock(wall func() time.Time) (err error) {
	s.clock.wall = wall
	boot, uptime := bootClock()
	if uptime == nil {
		return nil
	}
	const query = "SELECT value FROM meta WHERE name = 'clock'"
	r, _, err := s.writer.first(query)
	if err != nil {
		return err
	}
	if s.clock.zero, err = clockOf(r, boot); err != nil || s.clock.zero.IsZero() {
		if err := s.writer.control("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		if r, _, err = s.writer.first(query); err == nil {
			err = s.setClock(r, boot, wall().Add(-uptime()))
		}
		if err != nil {
			_ = s.writer.control("ROLLBACK") // SQLite may have rolled back by itself
			return err
		}
		if err := s.writer.control("COMMIT"); err != nil {
			return err
		}
	}
	s.clock.uptime = uptime
	return nil
}

// setClock stores a clock that was 0 at zero, unless another process was faster.
func (s *Store) setClock(r *row, boot string, zero time.Time) (err error) {
	if s.clock.zero, err = clockOf(r, boot); err == nil && !s.clock.zero.IsZero() {
		return nil
	}
	first := r == nil
	s.clock.zero = stored(zero)
	value := boot + " " + strconv.FormatInt(s.clock.zero.UnixMicro(), 10)
	if _, err := s.writer.exec("INSERT INTO meta (name, value) VALUES ('clock', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value", []byte(value)); err != nil || first {
		return err
	}
	_, err = s.writer.exec("UPDATE executions SET expires = 0 WHERE expires IS NOT NULL")
	return err
}

// clockOf reads when the clock of this boot was 0; the zero time when the stored
// one is of another boot, or there is none.
func clockOf(r *row, boot string) (time.Time, error) {
	if r == nil {
		return time.Time{}, nil
	}
	of, zero, _ := strings.Cut(string(r.blob()), " ")
	micros, err := strconv.ParseInt(zero, 10, 64)
	if of != boot || err != nil {
		return time.Time{}, r.err
	}
	return time.UnixMicro(micros).UTC(), r.err
}
