package sim

// readBackMutations are rules of the read-back after a kill.
var readBackMutations = []mutation{
	{
		rule: "the key of a row that was found continues", file: "pipeline/dispatch/results.go", found: "P1: ", seeds: 6000,
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
		rule: "reading continues until a look shows no more", file: "pipeline/readback/period.go", found: "P3: .*read back", seeds: 1000,
		edits: []edit{{"		if now == known {\n", "		if now >= known {\n"}},
	},
	{
		rule: "a look waits for what a broker stores late", file: "pipeline/readback/readback.go", found: "read back: .*again after", seeds: 1000,
		edits: []edit{{"still      = 300 * time.Millisecond", "still      = 30 * time.Millisecond"}},
	},
	{
		rule: "a topic is complete before the last look", file: "pipeline/readback/period.go", found: "P3: .*read back", seeds: 4000,
		edits: []edit{{"		err := p.reader.Committed(ctx, name)\n", "		err := ctx.Err()\n"}},
	},
	{
		rule: "a row of a sweep that shows no status is looked for", file: "pipeline/recovery/earlier.go", found: "P3: .*read back", seeds: 6000,
		edits: []edit{{"(status == outbox.Sending || untouched)", "(status == outbox.Sending || untouched && false)"}},
	},
	{
		rule: "a row of the sweep is not sent when a stop interrupts the reading", file: "pipeline/recovery/earlier.go",
		test: "AStopWhileTopicsAreReadForASweep", in: "pipeline/recovery",
		edits: []edit{{"	sent := r.earlier.Sent(ctx, asked)\n	if err := ctx.Err(); err != nil {\n", "	sent := r.earlier.Sent(ctx, asked)\n	if err := ctx.Err(); err != nil && false {\n"}},
	},
	{
		rule: "such a row keeps its claim", file: "pipeline/recovery/earlier.go", test: "AStopWhileTopicsAreReadForASweep", in: "pipeline/recovery",
		edits: []edit{{"		if maySent(outbox.PathSweep, c.Status, c.Untouched) {\n", "		if false {\n"}},
	},
	{
		rule: "rows wait for a broker that comes back later", file: "pipeline/recovery/earlier.go",
		test: "RowsWaitForABrokerThatComesBackLater", in: "pipeline/recovery",
		edits: []edit{{"	if err := r.earlier.Ready(ctx); err != nil {\n", "	if err := r.earlier.Ready(ctx); err != nil && false {\n"}},
	},
	{
		rule: "a row that is meant for now is looked for", file: "pipeline/recovery/lookup.go", test: "ARowThatIsMeantForNowIsNotLeftToTheSweep", in: "pipeline/recovery",
		edits: []edit{{" && (e.Delayed || state.RetryCount > 0 || state.Postponed()):", ":"}},
	},
	{
		rule: "no sweep overtakes rows that are read back", file: "pipeline/recovery/await.go", test: "NoSweepOvertakesRowsThatAreReadBack", in: "pipeline/recovery",
		edits: []edit{{" || r.asking.Load()", ""}},
	},
	{
		rule: "the claims of an earlier process stand", file: "internal/relay/life.go", found: "P3: .*read back", seeds: 14_000,
		edits: []edit{{"l.left.SettledAt, l.left.ClaimsAt = before.SettledAt, before.ClaimsAt\n", "l.left.SettledAt, l.left.ClaimsAt = before.SettledAt, before.SettledAt\n"}},
	},
	{
		rule: "a stop leaves its sign while claims stand", file: "internal/relay/life.go", test: "TestClaimsOutliveTheirProcess", in: "internal/relay",
		edits: []edit{{"l.back != nil && !l.tookOver", "l.back != nil && !l.past"}},
	},
	{
		rule: "a stop before the rows of a killed process are settled leaves its sign", file: "internal/relay/life.go", test: "TestAShortLifeLeavesNoSign", in: "internal/relay",
		edits: []edit{{"l.back != nil && !l.tookOver", "false"}},
	},
	{
		rule: "a sweep's row may wait long for its answer", file: "internal/relay/life.go", test: "TestClaimsOutliveTheirProcess", in: "internal/relay",
		edits: []edit{{"l.left.SettledAt.Add(-l.settings.After)", "l.left.SettledAt"}},
	},
	{
		rule: "a row of a sweep without an answer is within reach", file: "internal/relay/life.go", test: "TestARowOfASweepWithoutAnAnswerIsWithinReach", in: "internal/relay",
		edits: []edit{{"!since.IsZero() && since.Before(l.left.ClaimsAt)", "false"}},
	},
	{
		rule: "claims stand until a sweep took them over", file: "internal/relay/life.go", found: "P3: .*read back", seeds: 14_000,
		edits: []edit{{"late && r.Ready() && !r.Flow.Snapshot().TableClosed && r.Sweeper.TookOver() {", "late && r.Ready() {"}},
	},
	{
		rule: "the claims of rows that must wait stand too", file: "fallback/claims.go", test: "ClaimsAreTakenOverAtLast", in: "fallback",
		edits: []edit{{"	if all && !held && (", "	if !held && ("}},
	},
	{
		rule: "a claim that is being made may be lost", file: "fallback/claims.go", test: "AClaimThatIsBeingMadeMayBeLost", in: "fallback",
		edits: []edit{{" || t.open > 0", ""}},
	},
	{
		rule: "claims that are always made do not keep the search going", file: "fallback/claims.go", test: "AClaimThatIsBeingMadeMayBeLost", in: "fallback",
		edits: []edit{{"if !c.asked.IsZero() {", "if false {"}},
	},
	{
		rule: "a sweep that began after the claims had expired is complete", file: "fallback/claims.go", test: "ASweepAfterTheQuestionMustBeComplete", in: "fallback",
		edits: []edit{{" || t.began.Before(c.asked)", ""}},
	},
	{
		rule: "a stop with rows of a sweep that have no answer leaves its sign", file: "internal/relay/life.go", test: "TestARowOfASweepWithoutAnAnswerIsWithinReach", in: "internal/relay",
		edits: []edit{{" || !r.Flow.SweptSince().IsZero()", ""}},
	},
	{
		rule: "topics are searched while a table is closed", file: "internal/relay/life.go", test: "TestKeptSeeds", in: "test/sim",
		edits: []edit{{" && !r.Flow.Snapshot().TableClosed", ""}},
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
