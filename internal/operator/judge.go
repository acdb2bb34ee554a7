package operator

import (
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/docs"
)

// StuckAfter is how long the low-water mark may stay the same, with work to do and a broker that answers, before the process
// counts as stuck.
const StuckAfter = 2 * time.Minute

// LongWait is how long a key may wait for an earlier row of its own before a person should look at it.
const LongWait = 10 * time.Minute

// OldClaim is how far a claim may lie from the database's clock; a sweep takes it over long before that.
const OldClaim = 10 * time.Minute

// LowSpace is the room on the file system of the state directory below which a person should act. The store itself needs some
// megabytes, so what fills a disk is something else: 256 MiB leave about four minutes at 1 MiB/s.
const LowSpace = 256 << 20

// Judge sets State and Problems from what the status shows. more are problems that the parts report. A database that does not answer comes
// first, and under it what follows from it. stuck is the reason why the process counts as stuck, nil when it does not.
func Judge(st *Status, stuck error, more ...string) {
	p := []string{}
	add := func(when bool, sentence string, section ...string) {
		if when {
			p = append(p, See(sentence, section...))
		}
	}
	if st.Paused != nil {
		st.Source.State, st.Source.Error = "paused", ""
		add(true, "the relay is "+st.Paused.String()+": rows wait in the table and no row is lost; `canal-outbox resume` ends the pause", "Pause and resume")
	}
	add(st.Lease.State == "lapsed", "the lease could not be renewed in time, so nothing is sent until it is: "+st.Lease.Error, unlessAway(st, "Active and standby"))
	add(len(st.OtherRelays) > 0, twofold(st.OtherRelays), "Two relays on the same tables")
	add(st.GapsOpen > 0, fmt.Sprintf("%d gap(s) in the log are not acknowledged: `canal-outbox gaps list`", st.GapsOpen), "The binlog was purged")
	for _, t := range st.Sink.SuspendedTopics {
		add(true, "topic "+t.Topic+" is suspended, its rows wait: "+t.Reason, "A topic is missing")
	}
	for _, k := range st.WaitingKeys.First[:min(1, len(st.WaitingKeys.First))] { // which waits longest
		add(time.Since(k.Since) > LongWait, See(fmt.Sprintf("key %s of %s (topic %s) waits since %s for the row %s: %s; %d keys wait", k.Key, k.Table, k.Topic,
			k.Since.UTC().Format(time.RFC3339), k.MessageID, k.Reason, st.WaitingKeys.Keys), "A key waits"))
	}
	p = append(p, more...)
	add(st.Sink.Breaker == "open" || st.Sink.Breaker == "half-open", "the broker takes no messages, rows wait and lose no attempt: "+st.Sink.Reason, "The broker is away")
	p = append(p, source(st)...)
	add(st.Unwritable > 0, unwritable(st))
	for _, t := range st.Tables {
		failed := st.NewestFailed
		if failed != nil && failed.Table != t.Name {
			failed = nil
		}
		add(t.Rows["failed"] > 0 || failed != nil && t.SampledAt != nil && failed.At.After(*t.SampledAt), failedRows(t, failed))
		add(t.Rows["held"] > 0, fmt.Sprintf("%d rows of %s have a status that the configuration does not name: the relay never sends them; "+
			"`canal-outbox messages list --table %s --status held` lists them, `canal-outbox doctor` counts each value", t.Rows["held"], t.Name, t.Name), "Rows with an unknown status")
		add(t.FailedRetryError != "", "FAILED rows of "+t.Name+" cannot be tried again for now: "+t.FailedRetryError, Section(t.FailedRetryError, "FAILED rows"))
		if r := t.Redelivery; r != nil {
			p = append(p, redelivery(t.Name, r)...)
		}
		if old := t.OldestSendingSeconds; old != nil && *old > OldClaim.Seconds() {
			add(true, fmt.Sprintf("a row of %s is SENDING with a claim time %v away from the database's clock, and no sweep has taken it over: "+
				"check the sweep and the broker in this status", t.Name, round(*old)), "Claims")
		}
		if ahead := t.CreatedAheadSeconds; ahead != nil {
			add(true, fmt.Sprintf("rows of %s have a creation time %v ahead of the database's clock, so their age is not known: "+
				"`canal-outbox doctor` names the tables[].time_zone that fits", t.Name, round(*ahead)), "Clocks")
		}
	}
	p = append(p, disk(st.StateFreeBytes)...)
	p = underCause(st.Source.Away, p)
	st.State, st.Problems = "working", p
	if len(p) > 0 {
		st.State = "degraded"
	}
	if st.Source.State == "stuck" {
		st.State = "stuck"
	}
	if stuck != nil {
		st.State, st.Problems = "stuck", append(p, See(stuck.Error(), "The process is stuck"))
	}
}

// See ends a sentence with the section of the handbook that says what to do. The page makes a link of it.
func See(sentence string, section ...string) string {
	for _, s := range section {
		sentence += "; what to do: " + docs.Section(s)
	}
	return sentence
}

// source returns the problems of the server and of the connection to it.
func source(st *Status) (p []string) {
	s := &st.Source
	if s.State != "connected" && s.Error != "" {
		p = append(p, See("the binlog is not being read: "+s.Error, Section(s.Error, unlessAway(st, "The binlog is not read"))))
	}
	for _, setting := range s.Settings {
		p = append(p, See("the server's "+setting, "Settings of the server"))
	}
	if s.Warning != "" {
		p = append(p, See(s.Warning, "The binlog is not read"))
	}
	return p
}

// disk returns the problem that the state directory has little space.
func disk(free *int64) []string {
	if free == nil || *free >= LowSpace {
		return nil
	}
	return []string{See(fmt.Sprintf("only %d MiB are free on the file system of checkpoint.dir: the process ends when it cannot write its state there; make room",
		*free>>20), "The disk is full")}
}

// failedRows returns the problem of FAILED rows: their number, the reason of the newest one, and the command that lists them.
func failedRows(t TableStatus, newest *RowProblem) string {
	n := t.Rows["failed"]
	count := fmt.Sprintf("%d rows of %s are FAILED", n, t.Name)
	switch {
	case n == 0:
		count = "a row of " + t.Name + " became FAILED"
	case n == 1:
		count = "1 row of " + t.Name + " is FAILED"
	case t.Kinds["failed"] == "at_least":
		count = fmt.Sprintf("%d or more rows of %s are FAILED", n, t.Name)
	}
	if newest != nil {
		count += fmt.Sprintf("; the newest: id %s (%s), %s: %s", newest.ID, newest.MessageID, newest.Class, newest.Reason)
	}
	return See(count+"; list them with: canal-outbox messages list --table "+t.Name, "FAILED rows")
}

// redelivery returns the problems of the consumers of a table, as far as its rows show them.
func redelivery(table string, r *RedeliveryStatus) (p []string) {
	see := See("", "Rows that no consumer finishes")
	if r.GivenUp > 0 {
		p = append(p, fmt.Sprintf("%d rows of %s are SENT, were sent again %d times and are not %s: check the consumers%s", r.GivenUp, table, r.Max, r.Until, see))
	}
	if r.Full {
		p = append(p, fmt.Sprintf("too many rows of %s are SENT and not %s: no further row is sent again%s", table, r.Until, see))
	}
	if r.Error != "" {
		p = append(p, fmt.Sprintf("rows of %s that no consumer has finished cannot be sent again: %s%s", table, r.Error, see))
	}
	return p
}

// unwritable returns the problem of published rows that their table refuses to mark as SENT.
func unwritable(st *Status) string {
	text := fmt.Sprintf("%d published row(s) cannot be marked as SENT, because their table refuses the UPDATE", st.Unwritable)
	if p := st.NewestUnwritable; p != nil {
		text += fmt.Sprintf("; the newest: %s, id %s (%s): %s", p.Table, p.ID, p.MessageID, p.Reason)
	}
	return See(text+"; they are not sent again, and the UPDATE is tried again every minute", "Rows that cannot be written")
}

func round(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}
