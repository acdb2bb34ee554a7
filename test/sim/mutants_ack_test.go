package sim

// ackMutations are about tables that are written by the writer of another one.
var ackMutations = []mutation{
	{
		rule: "a table that was taken along has a writer again", file: "ack/along.go", found: "P1: |journal: .*still there",
		edits: []edit{{"	q.writing, q.batch = false, nil\n", "	q.batch = nil\n"}},
	},
}
