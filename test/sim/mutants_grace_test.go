package sim

// graceMutations are rules of tables whose application publishes itself.
var graceMutations = []mutation{
	{
		rule: "a row in its grace is not published from the log", file: "pipeline/offer.go", found: "grace: .*before the end",
		edits: []edit{{"	case e.Message.Grace > 0: //", "	case false: //"}},
	},
	{
		rule: "a timer gets a row in its grace", file: "pipeline/offer.go", found: "grace: .*after its grace",
		edits: []edit{{"			p.sweeps.DueIn(e.Row(), grace)\n", "			_ = grace\n"}}, seeds: 1000,
	},
	{
		rule: "a timer leaves a row alone that waits still", file: "fallback/due.go", found: "grace: |due: ",
		edits: []edit{{"		case c.Waiting && c.DueInMilli > nearlyDue.Milliseconds():\n", "		case c.Waiting && c.DueInMilli > nearlyDue.Milliseconds() && false:\n"}}, seeds: 1000,
	},
	{
		rule: "a sweep leaves a row alone that waits still", file: "fallback/sweep.go", found: "grace: ",
		edits: []edit{{"		case c.Waiting:\n", "		case c.Waiting && false:\n"}}, seeds: 1000,
	},
}
