package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// However many rows wait for their time, the process does not grow with them, and those that become due meanwhile are in time. Half of
// the others become due within a minute, far more than timers are kept for. WAITING_ROWS=1000000 is the full size.
func TestWaitingRowsTakeNoMemory(t *testing.T) {
	relay.Long(t)
	waiting := 30_000
	if n, err := strconv.Atoi(os.Getenv("WAITING_ROWS")); err == nil {
		waiting = n
	}
	l, read := newDelays(t, testkit.MySQL)
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 " +
		"UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	const copies = 10_000
	for at := 0; at < waiting; at += copies { // before the first start, so that they are not read from the log
		l.exec(fmt.Sprintf("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, next_retry_time) "+
			"SELECT 'million', CONCAT('w', %d + a.d * 1000 + b.d * 100 + c.d * 10 + e.d), 'delayed', '{}', '2100-01-01' FROM %s a, %s b, %s c, %s e",
			at, digits, digits, digits, digits))
	}
	l.exec("UPDATE t_local_message SET next_retry_time = NOW(3) + INTERVAL 5 MINUTE + INTERVAL RAND() * 600000000 MICROSECOND WHERE biz_key LIKE 'w%'")
	near := waiting / 2 // more than timers are kept for become due within the time that a look sees
	l.exec(fmt.Sprintf("UPDATE t_local_message SET next_retry_time = NOW(3) + INTERVAL 45 SECOND + INTERVAL RAND() * 10000000 MICROSECOND WHERE biz_key LIKE 'w%%' LIMIT %d", near))
	l.Start(t)
	small := l.resident("VmRSS")
	bound := l.bound(read)
	l.waiting("among", 1000, "3 SECOND", 5)
	late, most := read("among"), bound()
	peak := l.peak()
	t.Logf("%d rows wait: late by %v (median), %v (99 of 100), %v at most; resident %d MB, at its peak %d MB",
		waiting, late[len(late)/2], late[len(late)*99/100], late[len(late)-1], small>>20, peak>>20)
	if late[0] < -5*time.Millisecond || late[len(late)/2] > most {
		t.Errorf("rows were published %v to %v after their time, in the middle %v, which may be %v", late[0], late[len(late)-1], late[len(late)/2], most)
	}
	if peak > 128<<20 { // a million identities alone would be more
		t.Errorf("the process took %d MB", peak>>20)
	}
	l.stopInTime()
}
