package operator

import (
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
)

// StuckAfter is how long the low-water mark may stand still, with work to do and a broker that answers, before the process
// counts as stuck.
const StuckAfter = 2 * time.Minute

// Judge sets State and Problems from what the status shows. more are sentences that the stations say about themselves;
// stuck is the reason why the process counts as stuck, nil when it does not.
func Judge(st *admin.Status, stuck error, more ...string) {
	p := []string{}
	add := func(when bool, sentence string) {
		if when {
			p = append(p, sentence)
		}
	}
	add(len(st.OtherRelays) > 0, twofold(st.OtherRelays))
	add(st.GapsOpen > 0, "there are gaps in the log that nobody has acknowledged: `canal-outbox gaps list`")
	for _, t := range st.Sink.SuspendedTopics {
		add(true, "topic "+t.Topic+" is suspended, its rows wait: "+t.Reason)
	}
	p = append(p, more...)
	add(st.Sink.Breaker != "closed", "the broker takes no messages, rows wait and lose no attempt: "+st.Sink.Reason)
	add(st.Source.State != "connected" && st.Source.Error != "", "the binlog is not being read: "+st.Source.Error)
	add(st.Source.Warning != "", st.Source.Warning)
	for _, t := range st.Tables {
		if ahead := t.CreatedAheadSeconds; ahead != nil {
			add(true, fmt.Sprintf("rows of %s are made %v ahead of the database's clock, so their age is not known: "+
				"`canal-outbox doctor` says which tables[].time_zone they seem to have", t.Name, (time.Duration(*ahead)*time.Second)))
		}
	}
	st.State, st.Problems = "working", p
	if len(p) > 0 {
		st.State = "degraded"
	}
	if stuck != nil {
		st.State, st.Problems = "stuck", append(p, stuck.Error())
	}
}
