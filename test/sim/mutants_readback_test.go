package sim

// readBackMutations are rules of the read-back after a kill.
var readBackMutations = []mutation{
	{
		rule: "the key of a row that was found goes on", file: "pipeline/dispatch/results.go", found: "P1: ", seeds: 6000,
		edits: []edit{{"	d.order.Final(m.Identity, time.Now())\n", ""}},
	},
	{
		rule: "what was found is not sent", file: "pipeline/recovery/earlier.go", found: "P3: .*read back", seeds: 1000,
		edits: []edit{{"		if sent[i] {\n", "		if sent[i] && i%2 == 1 {\n"}},
	},
	{
		rule: "a row that a dead process has claimed and sent is not sent", file: "pipeline/recovery/earlier.go", found: "P3: .*read back", seeds: 4000,
		edits: []edit{{"		before := may && sent[next]\n", "		before := may && sent[next] && false\n"}},
	},
	{
		rule: "reading goes on until a look shows no more", file: "pipeline/readback/readback.go", found: "read back: .*once", seeds: 1000,
		edits: []edit{{"		if now == known {\n", "		if now >= known {\n"}},
	},
	{
		rule: "a look waits for what a broker stores late", file: "pipeline/readback/readback.go", found: "read back: .*again after", seeds: 1000,
		edits: []edit{{"still    = 300 * time.Millisecond", "still    = 30 * time.Millisecond"}},
	},
	{
		rule: "the period ends behind the last sign of life", file: "internal/relay/life.go", found: "P3: .*read back", seeds: 2000,
		edits: []edit{{"To: before.AliveAt.Add(settings.After)", "To: before.AliveAt"}},
	},
	{
		rule: "the period begins where all was settled", file: "internal/relay/life.go", found: "P3: .*read back", seeds: 4000,
		edits: []edit{{"From: before.SettledAt.Add(-settings.Before)", "From: before.AliveAt.Add(-settings.Before)"}},
	},
	{
		rule: "what was sent is settled when the checkpoint has passed it", file: "internal/relay/life.go", found: "P3: .*read back", seeds: 4000,
		edits: []edit{{"at.Compare(l.mark) < 0 || at.Compare(l.mark) == 0 && state.Owned > 0 {", "at.File == \"\" {"}},
	},
}
