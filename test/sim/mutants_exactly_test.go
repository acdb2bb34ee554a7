package sim

// exactlyMutations are rules of sink.kafka.exactly_once, and of setting rows back.
var exactlyMutations = []mutation{
	{
		rule: "a message is sent when the end of its transaction has its answer", file: "sink/kafka/transact.go", found: "exactly once: .*as sent", seeds: 1000,
		edits: []edit{{"	if err == nil {\n		x.ledger.Committed(e)", "	if err == nil || err != nil {\n		x.ledger.Committed(e)"}},
	},
	{
		rule: "an end without an answer is looked for", file: "sink/kafka/transact.go", found: "exactly once: .*as not sent", seeds: 1000,
		edits: []edit{{"	t := x.resolve(e)\n", "	t := transaction{verdict: aborted, err: errNotCommitted, began: true}\n"}},
	},
	{
		rule: "what is aborted is ended", file: "sink/kafka/transact.go", found: "exactly once: .*committed 2 times", seeds: 1000,
		edits: []edit{{"	x.abort(list, e)\n	if topics", "	if topics"}},
	},
	{
		rule: "what Kafka has left open is ended again", file: "sink/kafka/recover.go", found: "exactly once: messages of topic", seeds: 1000,
		edits: []edit{{"x.coordinator.Open(ctx, id, x.ends[id])", "x.coordinator.Open(ctx, id, nil)"}},
	},
	{
		rule: "after a lost connection all ids begin again", file: "sink/kafka/recover.go", found: "exactly once: messages of topic", seeds: 1000,
		edits: []edit{{" || x.producers.failed() {", " {"}},
	},
	{
		rule: "what the coordinator has said is kept when a start tries again", file: "sink/kafka/recover.go", found: "exactly once: ", seeds: 8000,
		edits: []edit{{"	if err := x.open(ctx); err != nil {\n		return nil, err\n	}\n	entries", "	for i := range x.ends {\n		x.ends[i] = Ends{Place{x.topic, 0}: Unsure}\n	}\n	if err := x.open(ctx); err != nil {\n		return nil, err\n	}\n	entries"}},
	},
	{
		rule: "an end of which nothing is known is the coordinator's", file: "sink/kafka/transact.go", found: "exactly once: ", seeds: 2000,
		edits: []edit{{"	x.ended(list, e, Unsure)\n	x.producers.drop", "	x.ended(list, e, Aborted)\n	x.producers.drop"}},
	},
	{
		rule: "what the broker has goes into the journal", file: "internal/relay/proof.go", found: "exactly once: .*committed 2 times", seeds: 1000,
		edits: []edit{{"	if len(rows) == 0 {\n", "	if len(rows) >= 0 {\n"}},
	},
	{
		rule: "an entry takes over the rows whose slot it uses", file: "sink/kafka/ledger/ledger.go", found: "exactly once: .*committed 2 times", seeds: 6000,
		edits: []edit{{"		e.Rows = l.takeOver(e.Rows, e.Number-l.slots)\n", ""}},
	},
	{
		rule: "an entry is needed until its rows are settled", file: "sink/kafka/ledger/ledger.go", found: "exactly once: .*committed 2 times", seeds: 2000,
		edits: []edit{{"	e.Low = max(e.Low, l.lowest(e.Number))\n", "	e.Low = e.Number - 1\n"}},
	},
	{
		rule: "a mark takes over what is not settled", file: "sink/kafka/ledger/ledger.go", found: "exactly once: .*committed 2 times", seeds: 6000,
		edits: []edit{{"n < e.Number; n++ {\n", "n < e.Number-1; n++ {\n"}},
	},
	{
		rule: "a row is settled when its table shows it", file: "sink/kafka/publish.go", found: "exactly once: .*committed 2 times", seeds: 2000,
		edits: []edit{{"			again = 0\n", "			again = 0\n			x.ledger.Settle(slices.Values(e.Rows))\n"}},
	},
	{
		rule: "a start remembers the rows that it has found until they are settled", file: "sink/kafka/ledger/ledger.go", found: "exactly once: .*committed 2 times", seeds: 12000,
		edits: []edit{{"			l.drop(id)\n			l.rows[id] = e.Number\n", "			l.drop(id)\n			l.rows[id] = 0\n"}},
	},
	{
		rule: "the proof forgets rows before they are set back", file: "sink/kafka/exactly.go", found: "P1: .*set back", seeds: 12000,
		edits: []edit{{"			done <- x.mark()\n", "			done <- nil\n"}},
	},
	{
		rule: "rows that are set back leave the journal", file: "internal/relay/setback.go", found: "P1: .*set back", seeds: 6000,
		edits: []edit{{"Commit(nil, free, nil, 0)", "Commit(nil, nil, nil, 0)"}},
	},
	{
		rule: "a row is set back when its status is written", file: "internal/relay/setback.go", found: "P1: .*set back", seeds: 6000,
		edits: []edit{
			{"slices.ContainsFunc(ids, r.tracker.Owns) &&", "len(ids) < 0 && slices.ContainsFunc(ids, r.tracker.Owns) &&"},
			{"	free = slices.DeleteFunc(slices.Clone(ids), r.tracker.Owns)\n", "	free = ids\n"},
		},
	},
	{
		rule: "rows that are set back are not looked for in their topics", file: "pipeline/readback/readback.go", found: "P1: .*set back", seeds: 12000,
		edits: []edit{{"		b.setBack[id] = struct{}{}\n", "		_ = id\n"}},
	},
}
