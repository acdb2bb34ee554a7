package sim

// againMutations are rules of final rows that go out again.
var againMutations = []mutation{
	{
		rule: "a FAILED row is tried again when it has been so for long enough", file: "redelivery/failed.go", found: "failed: .*of",
		edits: []edit{{"Status: outbox.Failed, Age: every,", "Status: outbox.Failed,"}},
	},
	{
		rule: "a pass over FAILED rows is noted before it begins", file: "redelivery/failed.go", found: "failed: .*pass",
		edits: []edit{{"	return max(0, wait), r.waits.Keep(", "	if known {\n		return 0, nil\n	}\n	return max(0, wait), r.waits.Keep("}}, seeds: 1000,
	},
	{
		rule: "a row that was set back has no owner", file: "redelivery/failed.go", found: "P1: .*pending",
		edits: []edit{{"	r.flow.SetBack(free) //", "	//"}},
	},
	{
		rule: "a SENT row goes out again so often as configured", file: "redelivery/sent.go", found: "redelivery: .*may",
		edits: []edit{{"			if w.Attempts < p.rule.Max || p.rule.Query != \"\" {\n", "			if true {\n"}, {"w.Attempts >= p.rule.Max { // asked", "false { // asked"}},
	},
	{
		rule: "a SENT row goes out again after its time", file: "redelivery/sent.go", found: "redelivery: .*SENT for",
		edits: []edit{{"Age: p.rule.After,", ""}},
	},
	{
		rule: "from one redelivery to the next is as long", file: "redelivery/sent.go", found: "redelivery: .*last time",
		edits: []edit{{"			if time.Now().Before(w.Due) {\n				break\n			}\n", ""}},
	},
	{
		rule: "a redelivery is counted before it is sent", file: "redelivery/sent.go", found: "redelivery: .*counted",
		edits: []edit{
			{"			return r.keep(counted)\n", "			late = append(late, counted...)\n			return nil\n"},
			{"	_, err := reserved.Publish(ctx, ", "	var late []table.Waiting\n	_, err := reserved.Publish(ctx, "},
			{"	})\n	return err\n}\n\nfunc (r *Redelivery) keep(", "	})\n	if kept := r.keep(late); err == nil {\n		err = kept\n	}\n	return err\n}\n\nfunc (r *Redelivery) keep("},
		},
	},
	{
		rule: "the count of redeliveries survives a crash", file: "checkpoint/waits.go", found: "redelivery: .*reopened",
		edits: []edit{{"	if len(put) == 0 {\n", "	if len(put) == 0 || kind == kindRedelivery {\n"}}, seeds: 3000,
	},
	{
		rule: "a start counts the redeliveries of earlier runs", file: "redelivery/sent.go", found: "redelivery: ",
		edits: []edit{{"		default:\n			r.counts[w.Identity] = w.Wait\n		}\n", "		}\n"}}, seeds: 1000,
	},
	{
		rule: "a count stays while its row is SENT", file: "redelivery/sent.go", found: "redelivery: .*forgotten",
		edits: []edit{{"		case counted:\n			p.seen[c.Identity] = true\n", "		case counted:\n"}},
	},
	{
		rule: "the consumers' service is asked first", file: "redelivery/sent.go", found: "redelivery: .*without an answer",
		edits: []edit{{"	if p.rule.Query == \"\" {\n		return due, nil\n", "	if true {\n		return due, nil\n"}},
	},
	{
		rule: "without an answer of the consumers' service nothing goes out", file: "redelivery/sent.go", found: "redelivery: .*without an answer",
		edits: []edit{{"			r.metrics.queryErrors.Inc()\n			return nil, fmt.Errorf(\"ask which messages are done: %w\", err)\n", "			return due, nil\n"}}, seeds: 1000,
	},
	{
		rule: "what the consumers' service has done is marked and does not go out", file: "redelivery/sent.go", found: "redelivery: .*done",
		edits: []edit{{"			if slices.Contains(done, c.Identity) {\n", "			if slices.Contains(done, c.Identity) && false {\n"}, {"MarkDone(bounded, done)", "MarkDone(bounded, done[:0])"}},
	},
	{
		rule: "the consumers' service says done of the right rows", file: "redelivery/query.go", found: "redelivery: .*no consumer said",
		edits: []edit{{"		if id, asked := byMessage[messageID]; asked {\n			done = append(done, id)\n", "		if _, asked := byMessage[messageID]; asked {\n			done = append(done, ids[0])\n"}}, seeds: 1000,
	},
	{
		rule: "nothing is written for a copy", file: "pipeline/dispatch/results.go", found: "redelivery: a copy",
		edits: []edit{{"	if m.Path == outbox.PathRedelivery {\n", "	if false {\n"}},
	},
	{
		rule: "a copy that has its answer leaves the registry", file: "pipeline/dispatch/results.go", found: "P1: .*go out again",
		edits: []edit{{"	d.tracker.Forget(e)\n", ""}},
	},
}
