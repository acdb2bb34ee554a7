package table

import (
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// What a table lacks has one replacement each:
//   - no SENDING code or no column for the claim stamp: the registry of the rows in this process's hands is the claim;
//   - no FAILED code: the row stays PENDING, is reported once, and waits for the longest time from then on;
//   - no due time, no attempts: Waits keep them;
//   - no column for the reason: the log has it.

// Claims reports whether a sweep marks rows before it publishes them.
func (t *Table) Claims() bool { return t.mapping.Codes[outbox.Sending] != "" && t.Has(LastExecTime) }

// Fails reports whether rows can be FAILED.
func (t *Table) Fails() bool { return t.mapping.Codes[outbox.Failed] != "" }

// redelivery refuses what cannot work.
func (c *check) redelivery(t *Table) {
	r := t.mapping.Redeliver
	if r.After == 0 {
		return
	}
	if t.mapping.States[r.Until] == "" {
		c.add(server.Fault, "", fmt.Sprintf("tables[].redeliver waits for the state %s, and no code is mapped to it", r.Until), "map it under tables[].codes")
	}
	if !slices.ContainsFunc(FinalSince(outbox.Sent), t.Has) {
		c.add(server.Fault, "", "tables[].redeliver: no column says since when a row is SENT",
			"map one under tables[].columns as sent_at, last_exec_time, updated_at or created_at, or leave redeliver out")
	}
}

// lacks reports what each missing column or code costs.
func (c *check) lacks(t *Table) {
	say := func(format string, args ...any) { c.add(server.OK, "", fmt.Sprintf(format, args...), "") }
	if !t.Claims() {
		say("rows are not marked while a sweep publishes them (codes.sending and columns.last_exec_time are not both mapped): " +
			"only one relay may work on the table")
	}
	if !t.Fails() {
		say("no code for FAILED: a row that is refused for good, or whose limit is reached, stays PENDING; it raises one alert, and is tried again after each longest wait")
	}
	if !t.Has(NextRetryTime) {
		say("no column for the due time: the waits of refused rows are in the state directory, and no message can be delayed")
	}
	if !t.Has(RetryCount) {
		say("no column for the attempts: they are counted in the state directory, and from 0 again when that is lost")
	}
	if !t.Has(FailReason) {
		say("no column for the reason of a refusal: it is in the relay's log only")
	}
	if t.Claims() && slices.Contains(strings.Split(spelledUpdated, " | "), t.columns[LastExecTime].Name) {
		say("%s is also the time stamp of a sweep's claim: if another program changes a row while it is SENDING, the row is taken over later", t.columns[LastExecTime].Name)
	}
}
