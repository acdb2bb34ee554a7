package canal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Rows of a table without a status (log) cannot be deferred: they are offered, or the transaction is not released.
func TestRowsWithoutAStatusAreNeverDeferred(t *testing.T) {
	for _, c := range []struct{ name, history, want string }{
		{"deleted at once", "gtid u#1\nbegin\ninsert log 1 2\nchange log\ninsert log 3\ncommit", "1600, u#1, rows 1 2 3\n"},
		{"with a row that is changed", "gtid u#1\nbegin\ninsert t a\ninsert log 1\nchange t\ninsert log 2\ncommit", "1700, u#1, rows 1 2, deferred shop.t rewritten 1\n"},
		{"one phase", "gtid u#1\nbegin 'x'\ninsert log 1\ninsert t a\nprepare one-phase", "1500, u#1, rows 1, deferred shop.t xa 1\n"},
		{"prepared", "gtid u#1\nbegin 'x'\ninsert log 1\nprepare\ngtid u#2\nxa-commit 'x'", "held shop.log xa before 1400\n"},
		{"an outcome of others", "gtid u#1\nxa-commit 'y'", "1200, u#1, deferred any xa 0\n"},
		{"rolled back", "gtid u#1\nbegin\ninsert log 1\nrollback", "1400, u#1\n"},
		{"a table that is altered", "gtid u#1\nstatement log", "1200, u#1\n"},
		{"an insert as a statement", "gtid u#1\nbegin\nstatement inserts log\ncommit", "held shop.log statement before 1400\n"},
		{"an insert into another table", "gtid u#1\nbegin\ninsert log 1\nstatement inserts t\ncommit", "1500, u#1, rows 1, deferred shop.t statement 0\n"},
		{"back to a savepoint", "gtid u#1\nbegin\ninsert log 1\nstatement undo\ncommit", "held shop.log statement before 1500\n"},
		{"no columns", "gtid u#1\nbegin\ninsert log 1 (2)\ncommit", "held shop.log unmapped before 1400\n"},
		{"no end", "gtid u#1\nbegin\ninsert log 1\ngtid u#2\nbegin\ncommit", "held shop.log unknown before 1300\n"},
		{"with too much of another", "gtid u#1\nbegin\ninsert log 1\ninsert t a b c d e f g h\ncommit", "1500, u#1, rows 1, deferred shop.t oversize 8\n"},
		{"too much", "gtid u#1\nbegin\ninsert log 1 2 3 4 5 6 7 8\ncommit", "large, before 1400\n"},
		{"too much, rolled back", "gtid u#1\nbegin\ninsert log 1 2 3 4 5 6 7 8\nrollback", "1400, u#1\n"},
	} {
		if got := newPlayer().play(t, c.history); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A transaction that is known to be committed is read in pieces that end where it begins; only its end moves the position.
func TestLargeTransactionInPieces(t *testing.T) {
	p := newPlayer()
	p.pieces = outbox.Position{File: "binlog.000001", Offset: 1700}
	got := p.play(t, "gtid u#1\nbegin\ninsert log 1 2 3\ninsert t a\ninsert log 4 5 6\ninsert log 7\ncommit\n"+
		"gtid u#2\nbegin\ninsert log 8 9 10\ninsert log 11\ncommit")
	want := "1000, rows 1 2 3, more\n1000, rows 4 5 6, more\n1700, u#1, rows 7, deferred shop.t oversize 1\n2200, u#2, rows 8 9 10 11\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Any statement may have inserted rows unless it is known not to.
func TestStatementsThatMayInsert(t *testing.T) {
	for query, want := range map[string]bool{
		"INSERT INTO t VALUES (1)": true, "replace t values (1)": true, "LOAD DATA INFILE 'x' INTO TABLE t": true, "/* app */ INSERT INTO t": true,
		"/*!40000 INSERT INTO t */": true, "/* open INSERT": true, "WITH x AS (SELECT 1) INSERT INTO t": true, "CALL p()": true,
		"ALTER TABLE t ADD c INT": false, "  /* a */ /* b */ DELETE FROM t": false, "TRUNCATE t": false, "update t set a = 1": false, "DROP TABLE t;": false,
	} {
		if got := mayInsert([]byte(query)); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}

// The problem names the command, with the position to continue from.
func TestHeldReaderSaysWhatToDo(t *testing.T) {
	err := error(&streamError{&heldError{table: "shop.log", cause: outbox.CauseXA, end: outbox.Position{File: "binlog.000007", Offset: 815}}})
	if c, _ := classOf(err); c != classHeld {
		t.Errorf("class %s", c)
	}
	for _, part := range []string{"shop.log", "XA", "every table", "canal-outbox checkpoint set --file binlog.000007 --pos 815"} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("%v: no %q", err, part)
		}
	}
}
