package checkpoint

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Entry is one line of the checkpoint's history.
type Entry struct {
	Number   uint64          `json:"number"` // names the entry; never used twice
	At       time.Time       `json:"at"`     // by our clock
	Position outbox.Position `json:"position"`
	Source   server.ID       `json:"source"`           // the server whose log the position is of
	Reason   string          `json:"reason,omitempty"` // why it was moved; "" for the ordinary way forward
}

// The history's limits. The finest step is needed for minutes ("just before that deploy"), hours do for last month.
const (
	historyPeriod  = time.Second         // at most one ordinary entry in this time
	historyNewest  = 1000                // always kept, whatever their age
	historyMinutes = 24 * time.Hour      // one a minute this far back
	historyHours   = 90 * 24 * time.Hour // one an hour this far back; older ones go
	historyBound   = 6000                // in all: the above is under 4700, the rest is for moves and for clocks that jump
	thinEvery      = 64                  // appended entries between two thinnings
)

// historyItem is what thinning needs to know of an entry.
type historyItem struct {
	number uint64
	at     time.Time
	moved  bool // has a reason: kept until historyHours
}

// thin splits the history, oldest first, into what stays and what goes. Of the ordinary entries behind the newest
// historyNewest, the oldest of each minute stays and later the oldest of each hour; the oldest, because it is then the
// same entry for both and thinning again changes nothing.
func thin(items []historyItem, now time.Time) (keep, drop []historyItem) {
	var minute, hour time.Time
	for i, m := range items {
		age := now.Sub(m.at)
		ofMinute, ofHour := m.at.Truncate(time.Minute), m.at.Truncate(time.Hour)
		stays := m.moved && age <= historyHours
		switch {
		case i >= len(items)-historyNewest:
			stays = true
		case age > historyHours:
			stays = false
		case age > historyMinutes:
			stays = stays || !ofHour.Equal(hour)
		default:
			stays = stays || !ofMinute.Equal(minute)
		}
		if !stays {
			drop = append(drop, m)
			continue
		}
		keep = append(keep, m)
		if !m.moved {
			minute, hour = ofMinute, ofHour
		}
	}
	if surplus := len(keep) - historyBound; surplus > 0 {
		drop = append(drop, keep[:surplus]...)
		keep = keep[surplus:]
	}
	return keep, drop
}
