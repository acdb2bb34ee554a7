package server

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Relation is what a server is to the one the checkpoint was taken on.
type Relation uint8

const (
	Same     Relation = iota // continue
	Failover                 // another server that holds every transaction of the checkpoint: continue, record it
	Shorter                  // the same server with less history than the checkpoint: a gap
	Foreign                  // anything else: refuse
)

// String returns the name used in logs and JSON.
func (r Relation) String() string {
	return [...]string{"same", "failover", "shorter", "foreign"}[r]
}

// CheckIdentity compares the server that answers now (its Executed read on this visit, and its end) with the recorded
// one and the checkpoint taken there. why is for the operator. It does no I/O.
//
// A zero recorded ID means that nothing is known yet: Same. On MariaDB the server_id replaces the UUID, so Same also
// asks for the checkpoint's transactions; since its default is 1 everywhere, that is the stronger half of the check.
func CheckIdentity(recorded ID, checkpoint outbox.Position, now Info, end outbox.Position) (r Relation, why string) {
	if recorded == (ID{}) {
		return Same, "no source was recorded before"
	}
	if recorded.Flavor != now.Flavor {
		return Foreign, fmt.Sprintf("the checkpoint is of a %s server, this is %s", recorded.Flavor, now.Flavor)
	}
	same := recorded.Same(now.ID)
	if checkpoint.GTIDs != "" && now.Executed != "" {
		missing, err := missingTransactions(now.Flavor, checkpoint.GTIDs, now.Executed)
		switch {
		case err != nil:
			return Foreign, err.Error()
		case missing == "" && same:
			return Same, ""
		case missing == "":
			return Failover, fmt.Sprintf("was %s, is now %s, which holds every transaction of the checkpoint", recorded, now.ID)
		case same && (now.Flavor == outbox.MySQL || sharesDomain(checkpoint.GTIDs, now.Executed)):
			return Shorter, "the server lacks transactions of the checkpoint: " + missing
		}
		return Foreign, fmt.Sprintf("was %s, is now %s, which lacks transactions of the checkpoint: %s", recorded, now.ID, missing)
	}
	switch {
	case !same:
		return Foreign, fmt.Sprintf("was %s, is now %s, and no GTIDs prove that its history is the same", recorded, now.ID)
	case checkpoint.GTIDs != "":
		return Shorter, "the server has no GTIDs any more, the checkpoint has " + checkpoint.GTIDs
	case end.Compare(checkpoint) < 0:
		return Shorter, fmt.Sprintf("the server's log ends at %s, before the checkpoint %s", end, checkpoint)
	}
	return Same, ""
}

// missingTransactions returns what of the checkpoint is not executed, as text; "" when nothing is missing.
func missingTransactions(flavor outbox.Flavor, checkpoint, executed string) (string, error) {
	want, err := outbox.ParseGTIDSet(flavor, checkpoint)
	if err != nil {
		return "", fmt.Errorf("the checkpoint is damaged: %w", err)
	}
	if flavor == outbox.MariaDB {
		return missingMariaDB(want, executed)
	}
	have, err := outbox.ParseGTIDSet(flavor, executed)
	if err != nil {
		return "", fmt.Errorf("the server's executed set: %w", err)
	}
	if have.Contains(want) {
		return "", nil
	}
	return fmt.Sprintf("it has %s, the checkpoint %s", have, want), nil
}

// missingMariaDB looks for each GTID of the checkpoint in the binlog state, which has the last one of every domain *and*
// server id. Comparing by domain alone would take any busier cluster for ours: they all write in domain 0.
func missingMariaDB(want *outbox.GTIDSet, state string) (string, error) {
	last := map[string]uint64{}
	for _, member := range members(state) {
		origin, seq, err := splitMariaDB(member)
		if err != nil {
			return "", fmt.Errorf("the server's binlog state: %w", err)
		}
		last[origin] = max(last[origin], seq)
	}
	var missing []string
	for _, member := range members(want.String()) {
		origin, seq, err := splitMariaDB(member)
		if err != nil {
			return "", fmt.Errorf("the checkpoint is damaged: %w", err)
		}
		if have, ok := last[origin]; !ok || have < seq {
			missing = append(missing, member)
		}
	}
	return strings.Join(missing, ","), nil
}

func sharesDomain(checkpoint, state string) bool {
	known := map[string]bool{}
	for _, member := range members(state) {
		domain, _, _ := strings.Cut(member, "-")
		known[domain] = true
	}
	for _, member := range members(checkpoint) {
		if domain, _, _ := strings.Cut(member, "-"); known[domain] {
			return true
		}
	}
	return false
}

func members(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}

// splitMariaDB returns "domain-server" and the sequence number.
func splitMariaDB(member string) (origin string, seq uint64, err error) {
	cut := strings.LastIndexByte(member, '-')
	if cut < 0 {
		return "", 0, fmt.Errorf("%q is not domain-server-sequence", member)
	}
	seq, err = strconv.ParseUint(member[cut+1:], 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not domain-server-sequence", member)
	}
	return member[:cut], seq, nil
}
