package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// minAge is the least age at which rows leave: less is a mistake in the unit. Consumers, operators and redelivery need the rows for longer.
const minAge, maxAge = time.Minute, 10 * 365 * 24 * time.Hour

// Suffixes are the ends of the names of the tables that rows move to.
func (c Retention) Suffixes() (all []string) {
	if c.Archive > 0 {
		all = append(all, table.ArchiveSuffix)
	}
	if c.Failed > 0 {
		all = append(all, table.FailedSuffix)
	}
	return all
}

// Hours are the ends of the window, since midnight; both 0 when there is none.
func (c Retention) Hours() (from, to time.Duration, err error) {
	if c.Window == "" {
		return 0, 0, nil
	}
	first, second, _ := strings.Cut(c.Window, "-")
	if from, err = timeOfDay(first); err == nil {
		to, err = timeOfDay(second)
	}
	if err == nil && from == to {
		err = fmt.Errorf("begins and ends at the same time")
	}
	return from, to, err
}

func timeOfDay(text string) (time.Duration, error) {
	at, err := time.Parse("15:04", strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("is no part of the day: write two times with a hyphen, such as 02:00-05:00")
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, nil
}

// goneBefore reports FAILED rows that would move away before they are tried again.
func (r *report) goneBefore(c *Config) {
	check := func(path string, every time.Duration) {
		if c.Retention.Failed > 0 && every >= c.Retention.Failed {
			r.add(path, every.String(), "is not less than retention.failed (%v): FAILED rows would leave the table before they are tried again", c.Retention.Failed)
		}
	}
	check("retry.failed_every", c.Retry.FailedEvery)
	for i, t := range c.Tables {
		check(fmt.Sprintf("tables[%d].retry.failed_every", i), t.Retry.FailedEvery)
		if leave := max(c.Retention.Sent, c.Retention.Archive); leave > 0 && t.Redeliver.After >= leave {
			r.add(fmt.Sprintf("tables[%d].redeliver.after", i), t.Redeliver.After.String(),
				"is not less than the age at which SENT rows leave (retention, %v): no row would go out again", leave)
		}
	}
}

func (r *report) retention(c *Retention, tables []Table) {
	for _, age := range []struct {
		path  string
		value time.Duration
	}{{"retention.sent", c.Sent}, {"retention.archive", c.Archive}, {"retention.failed", c.Failed}} {
		if age.value != 0 {
			r.Between(age.path, age.value, minAge, maxAge)
		}
	}
	if c.Archive != 0 && c.Sent != 0 {
		r.add("retention.archive", c.Archive.String(), "is set together with retention.sent: SENT rows are moved or deleted, set one of the two")
	}
	if _, _, err := c.Hours(); err != nil {
		r.add("retention.window", c.Window, "%v", err)
	} else if c.Window != "" && c.Sent == 0 && c.Archive == 0 && c.Failed == 0 {
		r.add("retention.window", c.Window, "has no effect while none of retention.sent, archive and failed is set")
	}
	for _, suffix := range c.Suffixes() {
		for i, t := range tables {
			path := fmt.Sprintf("tables[%d].name", i)
			if _, name, _ := table.SplitName(t.Name); !t.IsPattern() && len(name)+len(suffix) > 64 {
				r.add(path, t.Name, "is too long: rows would move to a table with %s behind this name, and a name has 64 characters at most", suffix)
			}
			for _, other := range tables {
				if strings.EqualFold(t.Name, other.Name+suffix) {
					r.add(path, t.Name, "is where rows of %s move to (retention): it cannot be an outbox table itself", other.Name)
				}
			}
		}
	}
}
