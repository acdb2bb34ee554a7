package sim

// leftMutations are rules of rows whose statuses wait in the journal alone.
var leftMutations = []mutation{
	{
		rule: "a sweep leaves a row alone that is left in the journal", file: "pipeline/tracker/registry.go", found: "P3: ", seeds: 3000,
		edits: []edit{{"t.registry[c.Identity] == nil && !t.isLeft(c.Identity) {", "t.registry[c.Identity] == nil {"}},
	},
	{
		rule: "the log brings no row again that is left in the journal", file: "pipeline/tracker/registry.go", found: "P3: ", seeds: 3000,
		edits: []edit{{"		if t.isLeft(m.Identity) {\n", "		if false {\n"}},
	},
	{
		rule: "rows that are left are fetched", file: "ack/left.go", found: "P1: ",
		edits: []edit{{"	record = w.left.records[0]\n", "	if true {\n		return 0, false, false\n	}\n	record = w.left.records[0]\n"}},
	},
	{
		rule: "a start remembers the rows that it leaves in the journal", file: "internal/relay/start.go", found: "P[13]: ", seeds: 3000,
		edits: []edit{{"			r.tracker.Leave(left)\n", ""}},
	},
	{
		rule: "a row is left in the registry before its record can be read", file: "ack/left.go", test: "TestManyRowsWaitInTheJournalAlone", in: "ack",
		edits: []edit{{"		out(left) //", "		//"}},
	},
	{
		rule: "a full table keeps no other one from its left rows", file: "ack/left.go", test: "TestAFullTableKeepsNoOtherFromItsLeftRows", in: "ack",
		edits: []edit{{"is = w.left.tables[c.Table] > 0 && w.full(c.Table)", "is = false"}},
	},
	{
		rule: "locked rows have a bound in memory", file: "ack/left.go", test: "TestLeftRowsBehindLocks", in: "ack",
		edits: []edit{{"q.writing && q.rows() >= lockedMost", "false"}},
	},
	{
		rule: "no key waits for a row that is left", file: "pipeline/tracker/registry.go", test: "TestLeftRowsKeepTheirOwner", in: "pipeline/tracker",
		edits: []edit{{"	if e == nil && t.isLeft(row) {\n", "	if false {\n"}},
	},
	{
		rule: "rows whose statuses are refused take no room", file: "ack/refused.go", found: "P1: ", seeds: 3000,
		edits: []edit{{"		a.progress.Refused(list)\n", ""}, {"		for i := range rows {\n			list[i]", "		_ = list\n		for i := range rows {\n			list[i]"}},
	},
	{
		rule: "rows of a stuck table are left to the sweep", file: "pipeline/dispatch/dispatch.go", test: "TestAStuckTableStopsNoOther", in: "pipeline/dispatch",
		edits: []edit{{"case d.stuck.tables[m.Table] &&", "case false && d.stuck.tables[m.Table] &&"}},
	},
	{
		rule: "rows of a stuck table take no room", file: "pipeline/dispatch/flight.go", test: "TestAStuckTableStopsNoOther", in: "pipeline/dispatch",
		edits: []edit{{"	unwritten.Rows = max(0, unwritten.Rows-f.stuck.rows)\n", ""}},
	},
	{
		rule: "rows that are fetched make room for others", file: "pipeline/tracker/left.go", test: "TestLeftRowsKeepTheirOwner", in: "pipeline/tracker",
		edits: []edit{{"	t.broadcast() // there is room for more that are left\n", ""}},
	},
}
