package canal

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	pingcap "github.com/pingcap/errors"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A06: the texts are those that the servers send (MySQL 5.7 to 9, MariaDB 10 to 11).
func TestA06_ClassOfAnError(t *testing.T) {
	fatal := func(text string) error { return pingcap.Trace(mysql.NewError(1236, text)) }
	for _, c := range []struct {
		err   error
		class class
		cause outbox.GapCause
	}{
		{fatal("Could not find first log file name in binary log index file"), classGap, outbox.GapPurged},
		{fatal("Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere"), classGap, outbox.GapPurged},
		{fatal("The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master has purged binary logs containing GTIDs that the slave requires."), classGap, outbox.GapPurged},
		{fatal("Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and required binlog files have been purged."), classGap, outbox.GapPurged},
		{fatal("Replica has more GTIDs than the source has, using the source's SERVER_UUID."), classGap, outbox.GapShorter},
		{fatal("Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog"), classGap, outbox.GapShorter},
		{fatal("Client requested source to start replication from position > file size"), classGap, outbox.GapShorter},
		{fatal("Client requested source to start replication from impossible position; the first event"), classGap, outbox.GapShorter},
		{fatal("A replica with the same server_uuid/server_id as this replica has connected to the source"), classFenced, ""},
		{fatal("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source"), classStuck, ""},
		{fatal("binlog truncated in the middle of event; consider out of disk space on source"), classStuck, ""},
		{mysql.NewError(4052, "A slave with the same server_uuid/server_id as this slave has connected"), classFenced, ""},
		{mysql.NewError(1373, "Target log not found in binlog index"), classGap, outbox.GapPurged},
		{mysql.NewError(1045, "Access denied"), classAccess, ""},
		{mysql.NewError(1227, "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)"), classAccess, ""},
		{mysql.NewError(1040, "Too many connections"), classBusy, ""},
		{mysql.NewError(1053, "Server shutdown in progress"), classLost, ""},
		{pingcap.Wrapf(mysql.ErrBadConn, "io.ReadFull(header) failed"), classLost, ""},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, classLost, ""},
		{&gapError{outbox.GapLostEvents, "incident"}, classGap, outbox.GapLostEvents},
		{&handlerError{errors.New("table gone")}, classHandler, ""},
		{&streamError{errors.New("invalid table id 7, no corresponding table map event")}, classBroken, ""},
		{errors.New("tls: failed to verify certificate"), classOther, ""},
	} {
		if got, cause := classOf(c.err); got != c.class || cause != c.cause {
			t.Errorf("%v: %s %s, want %s %s", c.err, got, cause, c.class, c.cause)
		}
	}
}

// What a person does about an event that the server cannot read is what the platform allows.
func TestCureOfAStuckEvent(t *testing.T) {
	const message = "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source"
	for platform, want := range map[server.Platform]string{
		server.Plain: "SET GLOBAL max_allowed_packet = 1073741824", server.Aurora: "set max_allowed_packet = 1073741824 in the DB cluster parameter group",
	} {
		if got := cure(message, platform); !strings.Contains(got, want) {
			t.Errorf("%q: %q", platform, got)
		}
	}
	if got := cure("consider out of disk space on source", server.RDS); !strings.Contains(got, "disk") {
		t.Errorf("%q", got)
	}
}

// Which ends of a stream become a gap, and when: another attempt cannot help, or a person had a day to act.
func TestG14_A54_WhenAnEndOfAStreamIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{}, nil, zap.NewNop(), prometheus.NewRegistry())
		r.pos = outbox.Position{File: "binlog.000007", Offset: 4711}
		judged := func(err error, want class, cause outbox.GapCause) {
			t.Helper()
			if c, got := r.judge(err, server.Plain); c != want || got != cause {
				t.Errorf("%v: %s %s, want %s %s", err, c, got, want, cause)
			}
		}
		at := func(text string) error { return &streamError{errors.New(text)} }
		fatal := func(text string) error { return &streamError{mysql.NewError(1236, text)} }
		judged(&gapError{outbox.GapLostEvents, "incident"}, classGap, outbox.GapLostEvents)
		judged(fatal("purged required binary logs"), classGap, outbox.GapPurged)

		judged(at("event 7 cannot be read"), classBroken, "")
		judged(at("event 8 cannot be read"), classBroken, "") // another event, or damage on the way
		judged(at("event 8 cannot be read"), classBroken, "")
		if r.gauge.snapshot().Stuck != nil {
			t.Error("it is called stuck before it is certain")
		}
		judged(at("event 8 cannot be read"), classGap, outbox.GapUnknownEvent)
		r.pastStuck()

		full := fatal("binlog truncated in the middle of event; consider out of disk space on source")
		for range 1000 {
			judged(full, classStuck, "")
			time.Sleep(stuckPatience / 1001)
		}
		s := r.gauge.snapshot().Stuck
		if s == nil || s.Attempts != 1000 || s.At != r.pos {
			t.Fatalf("%+v", s)
		}
		for _, words := range []string{"binlog.000007:4711", "1000 attempts", "out of disk space", "Make room on the server's disk", "the sweep publishes"} {
			if !strings.Contains(s.String(), words) {
				t.Errorf("%q is not in %q", words, s)
			}
		}
		time.Sleep(stuckPatience / 1000)
		judged(full, classGap, outbox.GapUnknownEvent)
		r.pastStuck()

		judged(full, classStuck, "")
		time.Sleep(stuckPatience - time.Second)
		r.pos.Offset++ // progress
		judged(full, classStuck, "")
		time.Sleep(2 * time.Second)
		judged(full, classStuck, "")
		for range 3 {
			judged(heldRows, classHeld, "")
			time.Sleep(2 * stuckPatience)
		}
	})
}

// heldRows is a transaction that only an operator may leave out.
var heldRows error = &streamError{&heldError{table: "shop.log", cause: outbox.CauseXA, end: outbox.Position{File: "binlog.000007", Offset: 5000}}}

// A heartbeat is at the end of the log only if it is not before the end that the server had when the stream was opened.
func TestG15_AHeartbeatBeforeTheEndIsNotIdle(t *testing.T) {
	const file = "binlog.000009"
	end := outbox.Position{File: file, Offset: 5<<32 + 700}
	for name, c := range map[string]struct {
		file string
		low  uint32
		idle bool
	}{
		"an older file":           {"binlog.000008", 900, false},
		"before the end":          {file, 600, false},
		"the end, beyond 32 bits": {file, 700, true},
		"a later file":            {"binlog.000010", 4, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := New(Config{}, nil, zap.NewNop(), prometheus.NewRegistry())
			rec := &recorder{}
			s := r.newStream(t.Context(), rec, outbox.Position{File: file, Offset: 4})
			s.end = end
			r.gauge.connected(outbox.Position{}, nil, 0)
			time.Sleep(time.Minute)
			err := s.handle(&replication.BinlogEvent{
				Header: &replication.EventHeader{EventType: replication.HEARTBEAT_EVENT, LogPos: c.low},
				Event:  &replication.HeartbeatEvent{Version: 1, Filename: c.file},
			})
			lag := r.gauge.snapshot().Lag
			if err != nil || s.idled != c.idle || rec.idle.IsZero() == c.idle || (lag == 0) != c.idle || !c.idle && lag < time.Minute {
				t.Errorf("%s: idle %v at %s, lag %v, %v", name, s.idled, rec.idle, lag, err)
			}
		})
	}
}

// A45, A39, A46: offsets wrap, are missing, and start at 4 again with each file.
func TestA45_OffsetsBeyond32Bits(t *testing.T) {
	var c cursor
	c.rotate([]byte("binlog.000007"), 4)
	for _, step := range []struct {
		low  uint32
		want uint64
	}{
		{1 << 20, 1 << 20}, {0, 1 << 20}, {1<<32 - 5, 1<<32 - 5}, {100, 1<<32 + 100}, {100, 1<<32 + 100}, {1 << 31, 1<<32 + 1<<31}, {7, 1<<33 + 7},
	} {
		if c.advance(step.low); c.Offset != step.want {
			t.Fatalf("after %d at %d, want %d", step.low, c.Offset, step.want)
		}
	}
	c.rotate([]byte("binlog.000008"), 4)
	if c.advance(500); c.Offset != 500 || c.File != "binlog.000008" {
		t.Fatalf("in the next file at %v", c.Position)
	}
}

// A45: the dump command has 32 bits, so a resume at a larger offset starts with the file and skips what was offered.
func TestA45_ResumeBeyond32Bits(t *testing.T) {
	from := outbox.Position{File: "binlog.000007", Offset: 5 << 32}
	if start := dumpStart(from); start.Pos != 4 || start.Name != from.File {
		t.Fatalf("start %v", start)
	}
	if start := dumpStart(outbox.Position{File: "binlog.000007", Offset: 4711}); start.Pos != 4711 {
		t.Fatalf("start %v", start)
	}
	h := &recorder{}
	s := &stream{ctx: t.Context(), handler: h, skip: from, gauge: newGauge(prometheus.NewRegistry(), nil, 1)}
	for _, offset := range []uint64{100, 5 << 32, 5<<32 + 100} {
		if err := s.offer(&outbox.Txn{End: outbox.Position{File: from.File, Offset: offset}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.txns) != 1 || h.txns[0].End.Offset != 5<<32+100 {
		t.Fatalf("offered %d transactions", len(h.txns))
	}
}

func TestClassOfAQuery(t *testing.T) {
	for _, c := range []struct {
		query, xid string
		kind       kind
	}{
		{"BEGIN", "", kindBegin},
		{"COMMIT", "", kindCommit},
		{"ROLLBACK", "", kindRollback},
		{"SAVEPOINT `a`", "", kindNothing},
		{"ROLLBACK TO `a`", "", kindStatement},
		{"ROLLBACK TO SAVEPOINT `a`", "", kindStatement},
		{"XA START X'31',X'',1", "X'31',X'',1", kindBegin},
		{"XA END X'31',X'',1", "X'31',X'',1", kindBegin},
		{"XA COMMIT X'31',X'',1", "X'31',X'',1", kindXACommit},
		{"XA ROLLBACK X'31',X'',1", "X'31',X'',1", kindXARollback},
		{"INSERT INTO t VALUES (1)", "", kindStatement},
		{"begin", "", kindStatement},
		{"", "", kindStatement},
		{"CREATE TABLE `x` (a int) START TRANSACTION", "", kindStatement},
	} {
		if k, xid := queryKind([]byte(c.query)); k != c.kind || xid != c.xid {
			t.Errorf("%q: %d %q", c.query, k, xid)
		}
	}
}

func TestA27_NamesInStatements(t *testing.T) {
	for query, want := range map[string]bool{
		"TRUNCATE t_local_message": true, "ALTER TABLE `shop`.`T_Local_Message` ADD x INT": true, "t_local_message": true,
		"RENAME TABLE a TO shop.t_local_message,b TO c": true, "DROP TABLE _t_local_message_del": false,
		"DROP TABLE t_local_message2": false, "DROP TABLE xt_local_message, t_local_message": true, "": false, "BEGIN": false,
		"DROP TABLE `a-t_local_message`": true,
	} {
		if names([]byte(query), "t_local_message") != want {
			t.Errorf("%q: want %v", query, want)
		}
	}
	for query, want := range map[string]bool{"INSERT INTO t": true, "update\tt": true, "ALTER TABLE t": false, "/* c */ INSERT": false, "TRUNCATE t": false} {
		if changesRowsOnly([]byte(query)) != want {
			t.Errorf("%q: want %v", query, want)
		}
	}
}

func TestA27_TableIdentityAndLetterCase(t *testing.T) {
	r := &tableSet{byName: map[string]*mapped{}, list: []*mapped{{name: "Shop.T_Local_Message", table: "T_Local_Message"}}}
	r.setFold(false)
	if r.find([]byte("shop"), []byte("t_local_message")) != nil || r.find([]byte("Shop"), []byte("T_Local_Message")) == nil {
		t.Error("lower_case_table_names=0: names differ by case")
	}
	r.setFold(true)
	if r.find([]byte("shop"), []byte("t_local_message")) == nil || r.find([]byte("shop2"), []byte("t_local_message")) != nil {
		t.Error("lower_case_table_names=1: names do not differ by case")
	}
}

// A53: the library's error quotes the event, which may be a message's body.
func TestA53_ErrorsQuoteNoEvent(t *testing.T) {
	s := &stream{ctx: t.Context()}
	err := s.reason(pingcap.Trace(&replication.EventError{Header: &replication.EventHeader{EventType: replication.QUERY_EVENT}, Err: "EOF", Data: []byte("secret")}))
	if text := fmt.Sprintf("%v %+v", err, err); text == "" || strings.Contains(text, "secret") {
		t.Fatalf("error %s", text)
	}
}

// A20: a payload without an event that ends the group ends the group itself. A40: types outside the library's list.
func TestA20_A40_KindsOfEvents(t *testing.T) {
	generic := func(typ byte, flags uint16) *replication.BinlogEvent {
		return &replication.BinlogEvent{Header: &replication.EventHeader{EventType: replication.EventType(typ), Flags: flags}, Event: &replication.GenericEvent{}}
	}
	d := &decoder{tables: newTableSet[plainTable](nil, nil)}
	for _, c := range []struct {
		e    *replication.BinlogEvent
		want kind
	}{
		{&replication.BinlogEvent{Header: &replication.EventHeader{}, Event: &replication.TransactionPayloadEvent{}}, kindPayloadEnd},
		{generic(172, 0), kindUnknown},
		{generic(199, 0), kindUnknown},
		{generic(199, replication.LOG_EVENT_IGNORABLE_F), kindNothing},
		{generic(byte(replication.INCIDENT_EVENT), 0), kindIncident},
		{generic(byte(replication.XA_PREPARE_LOG_EVENT), 0), kindPrepare},
		{generic(byte(replication.VIEW_CHANGE_EVENT), 0), kindNothing},
		{generic(byte(replication.STOP_EVENT), 0), kindNothing},
	} {
		if ev, err := d.decode(c.e, false); err != nil || ev.kind != c.want {
			t.Errorf("%s: kind %d, want %d (%v)", c.e.Header.EventType, ev.kind, c.want, err)
		}
	}
}

// With a heartbeat of one second a MariaDB sweep published 500 rows per second, one page for each.
func TestHeartbeatShowsOwnWritesSoon(t *testing.T) {
	for _, c := range []struct {
		flavor           outbox.Flavor
		configured, want time.Duration
	}{
		{outbox.MySQL, time.Minute, time.Minute},
		{outbox.MariaDB, time.Minute, OwnWritesPassed},
		{outbox.MariaDB, OwnWritesPassed / 2, OwnWritesPassed / 2},
	} {
		if got := heartbeatPeriod(c.flavor, c.configured); got != c.want {
			t.Errorf("%s, %v configured: %v, want %v", c.flavor, c.configured, got, c.want)
		}
	}
}
