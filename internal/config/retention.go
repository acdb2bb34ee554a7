package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// minAge is the minimum age at which rows leave: less is a wrong unit. Consumers, operators and redelivery need the rows for
// longer.
const minAge, maxAge = time.Minute, 10 * 365 * 24 * time.Hour

// Suffixes returns the suffixes of the tables that rows move to.
func (c Retention) Suffixes() (all []string) {
	if c.Archive > 0 {
		all = append(all, table.ArchiveSuffix)
	}
	if c.Failed > 0 {
		all = append(all, table.FailedSuffix)
	}
	return all
}

// Hours returns the ends of the window, since midnight; both 0 when there is none.
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

// RetentionOf returns the retention of a table: its own ages, if it has any, else those of all.
func (c *Config) RetentionOf(t *Table) Retention {
	r := c.Retention
	if t.Retention != nil {
		r.Sent, r.Archive, r.Failed = t.Retention.Sent, t.Retention.Archive, t.Retention.Failed
	}
	return r
}

// goneBefore reports final rows that would leave before they are sent again.
func (r *report) goneBefore(c *Config) {
	told := map[string]bool{}
	for i, t := range c.Tables {
		ages := c.RetentionOf(&t)
		path, every := fmt.Sprintf("tables[%d].retry.failed_every", i), t.Retry.FailedEvery
		if every == 0 {
			path, every = "retry.failed_every", c.Retry.FailedEvery
		}
		if ages.Failed > 0 && every >= ages.Failed && !told[path] {
			told[path] = true
			r.add(path, every.String(), "is not less than retention.failed (%v): FAILED rows would leave the table before they are tried again", ages.Failed)
		}
		if leave := max(ages.Sent, ages.Archive); leave > 0 && t.Redeliver.After >= leave {
			r.add(fmt.Sprintf("tables[%d].redeliver.after", i), t.Redeliver.After.String(),
				"is not less than the age at which SENT rows leave (retention, %v): no row would go out again", leave)
		}
	}
}

func (r *report) retention(c *Config) {
	all := &c.Retention
	r.ages("retention", all)
	off := all.Sent == 0 && all.Archive == 0 && all.Failed == 0
	for i, t := range c.Tables {
		if t.Retention != nil {
			own := c.RetentionOf(&t)
			r.ages(fmt.Sprintf("tables[%d].retention", i), &own)
			off = off && own.Sent == 0 && own.Archive == 0 && own.Failed == 0
		}
		r.movesTo(c, i)
	}
	if _, _, err := all.Hours(); err != nil {
		r.add("retention.window", all.Window, "%v", err)
	} else if all.Window != "" && off {
		r.add("retention.window", all.Window, "has no effect while none of retention.sent, archive and failed is set")
	}
	switch {
	case all.MaxReplicaLag == 0:
	case c.Fallback.ReadFrom == "":
		r.add("retention.max_replica_lag", all.MaxReplicaLag.String(), "has no effect: no replica is named under fallback.read_from")
	default:
		r.Between("retention.max_replica_lag", all.MaxReplicaLag, time.Second, 24*time.Hour)
	}
}

func (r *report) ages(path string, c *Retention) {
	for _, age := range []struct {
		path  string
		value time.Duration
	}{{path + ".sent", c.Sent}, {path + ".archive", c.Archive}, {path + ".failed", c.Failed}} {
		if age.value != 0 {
			r.Between(age.path, age.value, minAge, maxAge)
		}
	}
	if c.Archive != 0 && c.Sent != 0 {
		r.add(path+".archive", c.Archive.String(), "is set together with %s.sent: SENT rows are moved or deleted, set one of the two", path)
	}
}

// movesTo checks the names of the tables that rows of a table move to.
func (r *report) movesTo(c *Config, i int) {
	from := &c.Tables[i]
	for _, suffix := range c.RetentionOf(from).Suffixes() {
		if _, name, _ := table.SplitName(from.Name); !from.IsPattern() && len(name)+len(suffix) > 64 {
			r.add(fmt.Sprintf("tables[%d].name", i), from.Name, "is too long: rows would move to a table with %s after this name, and a name has 64 characters at most", suffix)
		}
		for j, other := range c.Tables {
			if strings.EqualFold(other.Name, from.Name+suffix) {
				r.add(fmt.Sprintf("tables[%d].name", j), other.Name, "is where rows of %s move to (retention): it cannot be an outbox table itself", from.Name)
			}
		}
	}
}
