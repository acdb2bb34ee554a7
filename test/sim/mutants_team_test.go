package sim

// teamMutations are rules of a lease that several processes share.
var teamMutations = []mutation{
	{
		rule: "a process without the lease publishes nothing", file: "lease/grant.go", found: "fence: |lease: ", team: true,
		edits: []edit{{"return g == nil || g.left() > 0", "return g == nil || g.left() >= 0"}},
	},
	{
		rule: "dropped attempts are settled, so that the registry gives the rows up", file: "ack/writer.go", found: ".", team: true,
		edits: []edit{{"		case u.Fenced:\n			unwritten[u.Identity] = true\n", "		case u.Fenced:\n			kept[u.Identity] = true\n"}}, seeds: 2000,
	},
	{
		rule: "a holder stops before its lease ends", file: "lease/protocol/held.go", found: "fence: |lease: ", team: true,
		edits: []edit{{"asked.Add(h.Time - h.Time/Margin)", "asked.Add(h.Time + h.Time/Margin)"}}, seeds: 1000,
	},
	{
		rule: "a lease counts from the time before it was asked for", file: "lease/grant.go", found: "fence: |lease: ", team: true,
		edits: []edit{{"		g.extend(asked)\n", "		_ = asked\n		g.extend(time.Now())\n"}}, seeds: 5000,
	},
	{
		rule: "a holder whose row is gone stops", file: "lease/grant.go", found: "fence: |lease: ", team: true,
		edits: []edit{{"	default:\n		g.end()\n", "	default:\n		g.extend(time.Now())\n"}},
	},
	{
		rule: "a lease that has ended by the database's clock is watched for a lease time", file: "lease/protocol/part.go", found: "fence: |lease: |take-over: .*takes", team: true,
		edits: []edit{{"since: now}\n		return false\n", "since: now}\n		return r.Ended\n"}, {"return r.Ended && unchanged >= theirs ||", "return r.Ended ||"}}, seeds: 1000,
	},
	{
		rule: "a lease that has not ended by the database's clock is watched for two lease times", file: "lease/protocol/part.go", found: "fence: |lease: |take-over: .*takes", team: true,
		edits: []edit{{"|| unchanged >= 2*theirs", "|| unchanged >= theirs/3"}},
	},
	{
		rule: "a lease that has ended is taken", file: "lease/protocol/part.go", found: "take-over: .*stands by", team: true,
		edits: []edit{{"return r.Ended && unchanged >= theirs || unchanged >= 2*theirs", "return r.Ended && unchanged >= 4*theirs"}},
	},
	{
		rule: "an orderly stop releases the lease", file: "lease/grant.go", found: "stop: .*released", team: true,
		edits: []edit{{"return l.rows.Release(ctx, own, at)", "_ = own\n	return nil"}},
	},
	{
		rule: "a take-over continues from the holder's position", file: "internal/relay/held.go", found: "P1: .*passed over", team: true,
		edits: []edit{{"err == nil && use {", "err == nil && use && false {"}},
	},
	{
		rule: "a holder writes its position into the lease", file: "internal/relay/held.go", found: "P1: .*passed over", team: true,
		edits: []edit{{"	r.At, _ = h.State.Checkpoint()\n", ""}},
	},
	{
		rule: "nothing is read before the lease has the position", file: "internal/relay/start.go", found: "P1: .*passed over", team: true,
		edits: []edit{{"if r.parts.Begin != nil {", "if false {"}}, seeds: 5000,
	},
	{
		rule: "the position is the process's before the lease is", file: "lease/lease.go", found: "P1: .*passed over|take-over: .*sent again", team: true,
		edits: []edit{{
			"		if err := l.handOver(ctx, resume, inherit); err != nil {\n			return nil, protocol.Decision{}, err\n		}\n",
			"		before := ctx\n		defer func() {\n			if grant != nil {\n				err = l.handOver(before, resume, inherit)\n			}\n		}()\n",
		}}, seeds: 2000,
	},
}
