package sim

// mutations are the rules that the simulation is known to see broken.
var mutations = []mutation{
	{
		rule: "the low-water mark waits for every row", file: "pipeline/tracker/lowwater.go", found: "checkpoint: ",
		edits: []edit{{"n < len(m.slots) && m.slots[n].left == 0", "n < len(m.slots)"}},
	},
	{
		rule: "the low-water mark keeps every GTID of a run of foreign transactions", file: "pipeline/tracker/lowwater.go", found: "checkpoint: .*GTIDs",
		edits: []edit{{"m.set.AddSet(s.merged)", "m.set.Add(s.gtid)"}},
	},
	{
		rule: "a GTID counts when its transaction is settled", file: "pipeline/tracker/lowwater.go", found: "checkpoint: .*GTIDs",
		edits: []edit{{"	if rows > 0 {\n		m.slots", "	if rows > 0 {\n		m.set.Add(gtid)\n		m.slots"}},
	},
	{
		rule: "an idle log moves the low-water mark only when nothing is open", file: "pipeline/tracker/lowwater.go", found: "checkpoint: ",
		edits: []edit{{`len(m.slots) == 0 && at.File != ""`, `at.File != ""`}},
	},
	{
		rule: "a sent row is settled when it is journalled and not when it is sent", file: "pipeline/dispatch/flight.go", found: "in the sink's hands|not journalled",
		edits: []edit{{"	e.Sends.InFlight = true\n", "	e.Sends.InFlight = true\n	f.tracker.Settled([]outbox.Completion{{Entry: e}})\n"}},
	},
	{
		rule: "rows of the recovery window are checked", file: "pipeline/recovery/recovery.go", found: "P3: .*SENT|P3: .*journal|P3: .*acknowledgement",
		edits: []edit{{"return end.Compare(r.end) <= 0", "return end.Compare(r.end) < -1"}},
	},
	{
		rule: "a sweep without the reader raises the window", file: "pipeline/recovery/await.go", found: "P3: ",
		edits: []edit{{"	r.raise(end.Position)\n	r.dispatch.Ahead(end.Position)\n	r.mu.Unlock()\n", "	r.dispatch.Ahead(end.Position)\n	r.mu.Unlock()\n"}}, seeds: 1000,
	},
	{
		rule: "a row has one owner", file: "pipeline/tracker/registry.go", found: "P3: |bookkeeping: ",
		edits: []edit{{"owner := t.registry[m.Identity]; owner != nil {", "owner := t.registry[m.Identity]; owner != nil && seq == 0 {"}},
	},
	{
		rule: "the journal of the last run is owned", file: "internal/relay/start.go", found: "P3: .*journal",
		edits: []edit{{"	r.tracker.Own(entries)\n", ""}}, seeds: 1000,
	},
	{
		rule: "what the sweep does not publish it gives back", file: "pipeline/reserved/reserved.go", found: "P1: ",
		edits: []edit{{"			flow.Release(left)\n", ""}},
	},
	{
		rule: "the sweep waits for the reader", file: "fallback/sweep.go", found: "P3: |latency: ",
		edits: []edit{
			{"	if err := s.flow.AwaitLog(ctx, end, s.cfg.Patience); err != nil {\n		return err\n	}\n	for batch", "	for batch"},
			{"	if err := s.flow.AwaitLog(ctx, end, s.cfg.Patience); err != nil {\n		return err\n	}\n	free, ", "	_ = end\n	free, "},
		},
	},
	{
		rule: "a refusal is guarded by the retry count of its row", file: "pipeline/dispatch/results.go", found: "budget: .*sent again",
		edits: []edit{{"RetryCount: e.RetryCount, Claim: m.Claim, Class", "RetryCount: 0, Claim: m.Claim, Class"}},
	},
	{
		rule: "an outage burns no budget", file: "pipeline/dispatch/results.go", found: "budget: ",
		edits: []edit{{"		if part {\n			d.answered", "		if !part {\n			d.refuse(e, c, now)\n			return\n		}\n		if part {\n			d.answered"}},
	},
	{
		rule: "a row gets its own result", file: "pipeline/dispatch/results.go", found: "P1: .*no copy",
		edits: []edit{{"		r := &list[i]\n", "		r := &sink.Result{Message: list[i].Message, Outcome: list[len(list)-1-i].Outcome}\n"}},
	},
	{
		rule: "unknown is not sent", file: "pipeline/dispatch/results.go", found: "P1: .*no copy|journal: .*not acknowledged",
		edits: []edit{{"	case outbox.ClassNone:\n", "	case outbox.ClassNone, outbox.ClassUnknown:\n"}, {"	case outbox.ClassUnknown:\n", "	case outbox.Class(99):\n"}},
	},
	{
		rule: "a commit of the journal is synced", file: "checkpoint/store.go", found: "journal: the reopened|checkpoint: the reopened",
		edits: []edit{{"s.files.commit(pebble.Sync)", "s.files.commit(pebble.NoSync)"}}, seeds: 1000,
	},
	{
		rule: "what is written leaves the journal before what is sent enters it", file: "checkpoint/journal.go", found: "journal: .*not there",
		edits: []edit{{"	for _, rows := range j.touched {\n", "	for i := range written {\n		j.remove(j.hash(written[i]))\n	}\n	for _, rows := range j.touched {\n"}}, seeds: 3000,
	},
	{
		rule: "a written row leaves the journal before the others of its commit", file: "checkpoint/journal.go", found: "journal: .*still has",
		edits: []edit{{"	if r.left > 0 {\n", "	if r.left > 0 {\n		return nil\n	}\n	if r.left > 0 {\n"}},
	},
	{
		rule: "a record of the journal goes with its last row", file: "checkpoint/journal.go", found: "journal: .*lacks",
		edits: []edit{{"	if r.left > 0 {\n", "	if r.left > 1 {\n"}},
	},
	{
		rule: "a record of the journal has a number of its own after a restart", file: "checkpoint/journal.go", test: "TestRecords", in: "checkpoint",
		edits: []edit{{"	j.last = max(j.last, row.in.number)\n", "		_ = max(1, 2)\n"}},
	},
	{
		rule: "the low-water mark moves with the position", file: "pipeline/tracker/log.go", found: "checkpoint: ",
		edits: []edit{{"	if err := p.lowWater.reset(flavor, at); err != nil {\n		return 0, err\n	}\n", ""}},
	},
	{
		rule: "a checkpoint read before a move is not written after it", file: "checkpoint/store.go", found: "checkpoint: ",
		edits: []edit{{"generation == s.progress.generation && ", ""}}, seeds: 5000,
	},
	{
		rule: "after a move back the low-water mark stays behind rows in flight", file: "pipeline/tracker/registry.go", found: "checkpoint: .*passes",
		edits: []edit{{"		owner.seq = seq\n		return\n", ""}}, seeds: 1000,
	},
	{
		rule: "a failover moves the low-water mark to GTIDs alone", file: "internal/relay/handler.go", found: "checkpoint: |P3: ",
		edits: []edit{{"	case failover:\n", "	case failover && id.Flavor == \"\":\n"}}, seeds: 2000,
	},
	{
		rule: "a refused connection makes the reader look again", file: "internal/relay/move.go", found: "P1: ",
		edits: []edit{{"			r.lookAgain(id)\n", "			_ = id\n"}}, seeds: 5000,
	},
	{
		rule: "a look at the server is not interrupted", file: "internal/relay/move.go", test: "RefusedConnectionsDoNotInterruptALook", in: "internal/relay",
		edits: []edit{{"	case !r.open:\n", "	case !r.open && false:\n"}},
	},
	{
		rule: "a refusal told late does not end a stream", file: "internal/relay/move.go", test: "LateRefusalDoesNotEndTheStream", in: "internal/relay",
		edits: []edit{{"	case r.parts.Gate.Still(id):\n", ""}},
	},
	{
		rule: "a guard refuses a server that was not accepted", file: "internal/relay/gate.go", found: "identity: ",
		edits: []edit{{"		return fmt.Errorf(\"expected %s\", accepted)\n", "		_ = fmt.Errorf\n		return nil\n"}}, seeds: 2000,
	},
	{
		rule: "a start sweeps rows of any age", file: "internal/relay/start.go", found: "start: ",
		edits: []edit{{"	r.triggers.Full()\n", ""}},
	},
	{
		rule: "an unwritable sent row stays in the journal", file: "ack/writer.go", found: "journal: .*before the table has answered",
		edits: []edit{{"			kept[u.Identity] = true // the broker", "			// the broker"}},
	},
	{
		rule: "a row behind a lock is not written yet", file: "ack/writer.go", found: "journal: .*before the table has answered",
		edits: []edit{{"			kept[u.Identity] = true\n			got.locked", "			got.locked"}}, seeds: 3000,
	},
	{
		rule: "written rows leave the registry", file: "ack/writer.go", found: "P1: ",
		edits: []edit{{"		a.progress.Written(batch)\n", ""}},
	},
	{
		rule: "a stop flushes the acknowledgements", file: "ack/ack.go", found: "P3: a clean stop|journal: .*still there",
		edits: []edit{{"	return a.flush(cut)\n", "	cut()\n	a.queues.close()\n	return nil\n"}}, seeds: 3000,
	},
	{
		rule: "a row that waits for its retry is not published from the recovery window", file: "pipeline/recovery/lookup.go", found: "due: ",
		edits: []edit{{"state.Status == outbox.Pending && state.Waiting && (e.Delayed || state.RetryCount > 0 || state.Postponed()):", "false:"}}, seeds: 1000,
	},
	{
		rule: "a delayed row is not published from the log", file: "pipeline/offer.go", found: "due: ",
		edits: []edit{{"m.DueAt.Sub(committed) > outbox.DueSlack", "m.DueAt.Sub(committed) > 1000*outbox.DueSlack"}},
	},
	{
		rule: "a timer gets a row that becomes due before the next look", file: "pipeline/offer.go", found: "due: ",
		edits: []edit{{"		case outbox.CauseNotDue:\n", "		case outbox.CauseStatus:\n"}}, seeds: 3000,
	},
	{
		rule: "a timer gets a retry when the table has it", file: "pipeline/tracker/tracker.go", found: "due: ",
		edits: []edit{{"if list[i].Action == outbox.ActionRetry {", "if false {"}}, seeds: 1000,
	},
	{
		rule: "full timers look for the rows that were left out", file: "fallback/timers.go", found: "due: ",
		edits: []edit{{"return t.full && len(t.rows.list) <= t.limit/2", "return false"}}, seeds: 3000,
	},
	{
		rule: "due rows that wait for something else do not fill the timers", file: "fallback/timers.go", test: "DueRowsDelayNoOthers", in: "fallback",
		edits: []edit{{"t.onward = t.full && t.alone\n", "t.onward = false\n"}},
	},
	{
		rule: "rows that became late in the timers stay there", file: "fallback/timers.go", test: "TestAStallPutsNoRowBehindTheBacklog", in: "fallback",
		edits: []edit{{"		case age <= stalled:\n", "		case age <= stalled && false:\n"}},
	},
	{
		rule: "a sweep lists every table", file: "fallback/shares.go", found: "P1: ",
		edits: []edit{{"open := 0, len(tables)", "open := 0, 1"}},
	},
	{
		rule: "a backlog has no longer share than others", file: "fallback/shares.go", test: "TestABacklogDelaysNoOtherTable", in: "fallback",
		edits: []edit{{"limited && time.Since(began) >= share)", "limited && time.Since(began) >= share && false)"}},
	},
	{
		rule: "tables are listed again during the backlog of another", file: "fallback/shares.go", test: "TestABacklogDelaysNoOtherTable", in: "fallback",
		edits: []edit{{"now.Sub(t.ended) >= max(relist, t.pause)", "t.ended.IsZero()"}},
	},
	{
		rule: "a locked table takes little time from a backlog", file: "fallback/shares.go", test: "TestALockedTableTakesLittleTimeFromABacklog", in: "fallback",
		edits: []edit{{"time.Duration(times) * took", "time.Duration(times) * took * 0"}},
	},
	{
		rule: "many locked tables take no more than one", file: "fallback/shares.go", test: "TestALockedTableTakesLittleTimeFromABacklog", in: "fallback",
		edits: []edit{{"			times += relistTimes\n", ""}},
	},
	{
		rule: "a sweep follows that continues a list that was cut off", file: "fallback/sweep.go", test: "TestABacklogThatComesLaterGoesOn", in: "fallback",
		edits: []edit{{"r.heldAny || r.cut {", "r.heldAny {"}},
	},
	{
		rule: "a requested sweep need not wait for a backlog", file: "fallback/shares.go", test: "TestABacklogDelaysNoOtherTable", in: "fallback",
		edits: []edit{{"again && s.triggers.pending()", "again && false"}},
	},
	{
		rule: "a look behind rows that wait does not leave out rows that were dropped", file: "fallback/timers.go", test: "TestARowDroppedForAnAnnouncedOneIsLookedForAgain", in: "fallback",
		edits: []edit{{"		t.behind = t.last\n", "		t.behind = t.known\n"}},
	},
	{
		rule: "the rows that become due first stay in the timers", file: "fallback/timers.go", found: "due: ",
		edits: []edit{{"return cmp.Or(a.at.Compare(b.at)", "return cmp.Or(b.at.Compare(a.at)"}}, seeds: 3000,
	},
	{
		rule: "a row that is postponed is entered again", file: "fallback/due.go", found: "due: ",
		edits: []edit{{"			s.later(name, &c, asked, &end)\n", ""}}, seeds: 1000,
	},
	{
		rule: "only PENDING rows of the recovery window are published", file: "pipeline/recovery/lookup.go", found: "P3: ",
		edits: []edit{{"	case state.Status == outbox.Pending:\n", "	case state.Status != outbox.Held:\n"}},
	},
	{
		rule: "rows of the recovery window that are not all untouched are looked up one by one", file: "pipeline/recovery/lookup.go", found: "P3: ",
		edits: []edit{{"		if untouched {\n", "		if untouched || true {\n"}}, seeds: 3000,
	},
	{
		rule: "a trial of the half-open breaker that fails is followed by another", file: "pipeline/dispatch/breaker.go", found: "P1: ",
		// Each of the two alone makes up for the other: the breaker opens again, or another message tries in time.
		edits: []edit{{"	case b.state == breakerHalfOpen, b.state == breakerClosed", "	case b.state == breakerClosed"}, {"now.Add(trialPause)", "now.Add(1000 * trialPause)"}}, seeds: 5000,
	},
	{
		rule: "a message without an answer is sent again", file: "pipeline/dispatch/flight.go", found: "P1: ",
		edits: []edit{{"	f.retry.add(e)\n", ""}},
	},
	{
		rule: "a refused row makes its key wait", file: "pipeline/dispatch/results.go", found: "order: ",
		edits: []edit{{"	d.keyWaits(e, e, reasonOf(&c), now) //", "	if next, _ := d.order.Sent(e, now); next != nil {\n		d.launch(next, now)\n	}\n	//"}},
	},
	{
		rule: "one row of a key is the sink's at a time", file: "pipeline/keyorder/order.go", found: "order: ",
		edits: []edit{{"	first := s.first == nil\n	s.add(e)\n", "	first := true\n	if s.first == nil {\n		s.add(e)\n	}\n"}},
	},
	{
		rule: "keys of rows that are not final at a start wait", file: "pipeline/keyorder/order.go", found: "order: ",
		edits: []edit{{"&tableState{reading: notRead}", "&tableState{}"}}, seeds: 3000,
	},
	{
		rule: "a row that is left to the sweep makes its key wait", file: "pipeline/keyorder/order.go", found: "order: ",
		edits: []edit{{"	o.leave(k, e.Row(), writes, why, true, now).wasSetBack(e)\n", "	if writes != nil {\n		o.leave(k, e.Row(), writes, why, true, now)\n	}\n"}}, seeds: 3000,
	},
	{
		rule: "a row of the window that is not found makes its key wait", file: "pipeline/recovery/lookup.go", found: "order: ",
		// Each of the two alone makes up for the other.
		edits: []edit{{"		r.dispatch.Leave(e, outbox.CauseNotFound)\n", "		r.tracker.Drop(e, outbox.CauseNotFound)\n"}, {"	r.dispatch.Expect(rows)\n", ""}}, seeds: 5000,
	},
	{
		rule: "the sweep takes rows of a key in their order", file: "pipeline/keyorder/order.go", found: "order: ",
		edits: []edit{{"	case left != nil && s.left[0] != left, left == nil && len(s.left) > 0 && !before(e.Row().ID, s.left[0].id.ID):\n		return false\n", ""}}, seeds: 1000,
	},
	{
		rule: "a key continues when its row is final", file: "pipeline/keyorder/look.go", found: "P1: ",
		edits: []edit{{"		o.forget(row, now)\n	case c.Waiting:\n", "	case c.Waiting:\n"}},
	},
	{
		rule: "a sweep that goes before the reader reads the table first", file: "pipeline/keyorder/reserve.go", found: "order: ",
		edits: []edit{{"(ahead || t.deferred.unknown) && !o.complete", "t.deferred.unknown && !o.complete"}, {"	ahead := ", "	_ = "}}, seeds: 5000,
	},
	{
		rule: "later rows of a key wait for a row that the reader defers", file: "pipeline/offer.go", found: "order: ",
		edits: []edit{{"	p.dispatch.Deferred(txn.Deferred)\n", ""}},
	},
	{
		rule: "a deferred row is known when a reading begins behind the sight of a later one", file: "pipeline/keyorder/deferred.go", found: "order: ",
		edits: []edit{{"t.deferred.unknown, t.deferred.proof = true, 0\n", "t.deferred.unknown, t.deferred.proof = true, t.begun+1\n"}}, seeds: 1000,
	},
	{
		rule: "a sweep takes rows behind a deferred one when the table was read since", file: "pipeline/keyorder/reserve.go", found: "order: ",
		edits: []edit{{"(ahead || t.deferred.unknown) && !o.complete", "ahead && !o.complete"}}, seeds: 3000,
	},
	{
		rule: "a row behind one that fails remains one that was FAILED", file: "pipeline/keyorder/order.go", test: "TestFailedRowsDoNotWaitForTheRetryOfAnother", in: "pipeline/dispatch",
		edits: []edit{{"whyBehind, true, now).wasSetBack(e)", "whyBehind, true, now)"}},
	},
	{
		rule: "the gate is asked for each send of a row", file: "pipeline/keyorder/order.go", test: "TheOrderIsAskedForASecondSend", in: "pipeline/dispatch",
		edits: []edit{{"	return o.mayFollow(o.memory.keys[k], e)\n", "	return o.mayFollow(o.memory.keys[k], e) || true\n"}},
	},
	{
		rule: "an earlier row that waits behind a row goes before its second send", file: "pipeline/keyorder/order.go", test: "AnEarlierRowOfASweepGoesBeforeASecondSend", in: "pipeline/dispatch",
		edits: []edit{{"if one.Swept() && before(one.Row().ID, e.Row().ID) {\n\t\t\treturn false", "if one.Swept() && before(one.Row().ID, e.Row().ID) {\n\t\t\treturn true"}},
	},
	{
		rule: "a key continues when the row that it waits for is taken away", file: "pipeline/keyorder/look.go", found: "P1: ",
		edits: []edit{{"now.Add(min(wait+time.Second, headLook))", "now.Add(wait + time.Second)"}}, seeds: 1000,
	},
	{
		rule: "a sent row without a status stays in the journal until the checkpoint has passed it", file: "pipeline/tracker/kept.go", found: "journal: .*has passed it",
		edits: []edit{{"		s.kept = append(s.kept, e)\n", "		k.passed = append(k.passed, e)\n"}},
	},
	{
		rule: "rows without a status that come in pieces stay until the end was passed", file: "pipeline/tracker/kept.go", found: "journal: .*has passed it",
		edits: []edit{{"		if !s.piece {\n", "		if !s.piece || true {\n"}},
	},
	{
		rule: "a row without a status is left to no sweep", file: "pipeline/dispatch/results.go", found: "checkpoint: .*failed-message log",
		edits: []edit{{"		if e.LogOnly {\n			d.hold(e, now)", "		if false {\n			d.hold(e, now)"}},
	},
}
