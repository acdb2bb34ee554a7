package sim

// mutations are the rules that the simulation is known to see broken.
var mutations = []mutation{
	{
		rule: "the mark waits for every row", file: "pipeline/mark.go", found: "checkpoint: ",
		edits: []edit{{"n < len(m.slots) && m.slots[n].open == 0", "n < len(m.slots)"}},
	},
	{
		rule: "the mark keeps every GTID of a run of foreign transactions", file: "pipeline/mark.go", found: "checkpoint: .*GTIDs",
		edits: []edit{{"m.set.AddSet(s.merged)", "m.set.Add(s.gtid)"}},
	},
	{
		rule: "a GTID counts when its transaction is settled", file: "pipeline/mark.go", found: "checkpoint: .*GTIDs",
		edits: []edit{{"	if rows > 0 {\n		m.slots", "	if rows > 0 {\n		m.set.Add(gtid)\n		m.slots"}},
	},
	{
		rule: "an idle log moves the mark only when nothing is open", file: "pipeline/mark.go", found: "checkpoint: ",
		edits: []edit{{`len(m.slots) == 0 && at.File != ""`, `at.File != ""`}},
	},
	{
		rule: "a sent row is settled when it is journalled and not when it is sent", file: "pipeline/offer.go", found: "in the sink's hands|not journalled",
		edits: []edit{{"	e.state = inFlight\n", "	e.state = inFlight\n	p.settleRow(e)\n"}},
	},
	{
		rule: "rows of the recovery window are checked", file: "pipeline/offer.go", found: "P3: .*SENT|P3: .*journal",
		edits: []edit{{"inWindow = end.Compare(p.windowEnd) <= 0", "inWindow = end.Compare(p.windowEnd) < -1"}},
	},
	{
		rule: "a sweep without the reader raises the zone", file: "fallback/position.go", found: "P3: ",
		edits: []edit{{"	s.flow.RaiseWindow(end)\n", ""}}, seeds: 1000,
	},
	{
		rule: "a row has one owner", file: "pipeline/registry.go", found: "P3: |bookkeeping: ",
		edits: []edit{{"	if _, owned := r[id]; owned {\n		return false\n	}\n", ""}},
	},
	{
		rule: "the journal of the last run is owned", file: "internal/app/start.go", found: "P3: .*journal",
		edits: []edit{{"	r.pipeline.Own(entries)\n", ""}}, seeds: 1000,
	},
	{
		rule: "what the sweep does not publish it gives back", file: "fallback/sweep.go", found: "P1: ",
		edits: []edit{{"defer func() { s.flow.Release(identities(open)) }()", "_ = identities"}},
	},
	{
		rule: "the sweep waits for the reader", file: "fallback/sweep.go", found: "P3: |latency: ",
		edits: []edit{{"	if err := s.awaitReader(ctx); err != nil {\n		return err\n	}\n", ""}},
	},
	{
		rule: "a refusal is guarded by the retry count of its row", file: "pipeline/results.go", found: "budget: .*sent again",
		edits: []edit{{"RetryCount: m.RetryCount, Claim: m.Claim, Class: r.Class", "RetryCount: 0, Claim: m.Claim, Class: r.Class"}},
	},
	{
		rule: "an outage burns no budget", file: "pipeline/results.go", found: "budget: ",
		edits: []edit{{"		if r.Scope == outbox.ScopePartition {", "		if r.Scope != outbox.ScopePartition {\n			return p.refuse(e, s), true\n		}\n		if r.Scope == outbox.ScopePartition {"}},
	},
	{
		rule: "a row gets its own result", file: "pipeline/results.go", found: "P1: .*no copy",
		edits: []edit{{"		r := &list[i]\n", "		r := &sink.Result{Message: list[i].Message, Outcome: list[len(list)-1-i].Outcome}\n"}},
	},
	{
		rule: "unknown is not sent", file: "pipeline/results.go", found: "P1: .*no copy|journal: .*not acknowledged",
		edits: []edit{{"	case outbox.ClassNone:\n", "	case outbox.ClassNone, outbox.ClassUnknown:\n"}, {"	case outbox.ClassUnknown:\n", "	case outbox.Class(99):\n"}},
	},
	{
		rule: "a commit of the journal is synced", file: "checkpoint/store.go", found: "journal: the reopened|checkpoint: the reopened",
		edits: []edit{{"s.batch.Commit(pebble.Sync)", "s.batch.Commit(pebble.NoSync)"}}, seeds: 1000,
	},
	{
		rule: "what is written leaves the journal before what is sent enters it", file: "checkpoint/store.go", found: "journal: .*not there",
		edits: []edit{{"	return nil\n}\n\nfunc (s *Store) countJournal(", "	for i := range written {\n		s.key = appendJournalKey(s.key[:0], written[i])\n" +
			"		if err := s.batch.Delete(s.key, nil); err != nil {\n			return err\n		}\n	}\n	return nil\n}\n\nfunc (s *Store) countJournal("}}, seeds: 3000,
	},
	{
		rule: "the mark moves with the position", file: "pipeline/pipeline.go", found: "checkpoint: ",
		edits: []edit{{"	if err := p.mark.reset(flavor, at); err != nil {\n		return 0, err\n	}\n", ""}},
	},
	{
		rule: "a checkpoint read before a move is not written after it", file: "checkpoint/store.go", found: "checkpoint: ",
		edits: []edit{{"epoch == s.place.epoch && ", ""}}, seeds: 5000,
	},
	{
		rule: "after a move back the mark stays behind rows in flight", file: "pipeline/offer.go", found: "checkpoint: .*passes",
		edits: []edit{{"		owner.seq = e.seq\n		return\n", ""}}, seeds: 1000,
	},
	{
		rule: "a gap is followed by a full sweep", file: "internal/app/handler.go", found: "gap: ",
		edits: []edit{{"	r.identity.accept(info.ID)\n	r.sweeper.Full()\n", "	r.identity.accept(info.ID)\n"}}, seeds: 3000,
	},
	{
		rule: "a failover moves the mark to GTIDs alone", file: "internal/app/handler.go", found: "checkpoint: |P3: ",
		edits: []edit{{"	case failover:\n", "	case failover && id.Flavor == \"\":\n"}}, seeds: 2000,
	},
	{
		rule: "a refused connection makes the reader look anew", file: "internal/app/start.go", found: "P1: ",
		edits: []edit{{"		r.lookAnew()\n", ""}}, seeds: 5000,
	},
	{
		rule: "a guard refuses a server that nobody has accepted", file: "internal/app/start.go", found: "identity: ",
		edits: []edit{{"		return fmt.Errorf(\"expected %s\", accepted)\n", "		return nil\n"}}, seeds: 2000,
	},
	{
		rule: "a start sweeps rows of any age", file: "internal/app/start.go", found: "start: ",
		edits: []edit{{"	r.sweeper.Full()\n", ""}},
	},
	{
		rule: "an unwritable sent row stays in the journal", file: "ack/writer.go", found: "journal: .*before the table has answered",
		edits: []edit{{"			if unwritable[s.Identity] {\n", "			if false {\n"}},
	},
	{
		rule: "a row behind a lock is not written yet", file: "ack/writer.go", found: "journal: .*before the table has answered",
		edits: []edit{{"			waiting[u.Identity] = true\n", ""}}, seeds: 3000,
	},
	{
		rule: "written rows leave the registry", file: "ack/writer.go", found: "P1: ",
		edits: []edit{{"		a.progress.Written(final)\n", "		_ = final\n"}},
	},
	{
		rule: "a stop flushes the acknowledgements", file: "ack/ack.go", found: "P3: a clean stop|journal: .*still there",
		edits: []edit{{"	return a.flush(cut)\n", "	cut()\n	a.queues.close()\n	return nil\n"}}, seeds: 3000,
	},
	{
		rule: "a row that waits for its retry is not published from the zone", file: "pipeline/zone.go", found: "due: ",
		edits: []edit{{"state.Status == outbox.Pending && state.Waiting:", "false:"}}, seeds: 1000,
	},
	{
		rule: "a delayed row is not published from the log", file: "pipeline/offer.go", found: "due: ",
		edits: []edit{{"m.DueAt.Sub(committed) > dueSlack", "m.DueAt.Sub(committed) > 1000*dueSlack"}},
	},
	{
		rule: "the sweep hears of a row that becomes due before it comes by itself", file: "pipeline/offer.go", found: "due: ",
		edits: []edit{{"			if cause == outbox.CauseNotDue {\n", "			if false {\n"}}, seeds: 3000,
	},
	{
		rule: "only PENDING rows of the zone are published", file: "pipeline/zone.go", found: "P3: ",
		edits: []edit{{"		case state.Status == outbox.Pending:\n", "		case state.Status != outbox.Held:\n"}},
	},
	{
		rule: "silence of the trial opens the breaker again", file: "pipeline/results.go", found: "P1: ",
		edits: []edit{{"if p.breaker.state == breakerClosed && p.lastOK", "if p.lastOK"}, {"		e.silence = now\n", ""}}, seeds: 5000,
	},
	{
		rule: "a message without an answer is sent again", file: "pipeline/results.go", found: "P1: ",
		edits: []edit{{"	p.heldBack = append(p.heldBack, e)\n", ""}},
	},
}
