package operator

import (
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/docs"
)

// An error of the database leads to the section that says what to do about this error.
func TestG42_ErrorsLinkToTheirSections(t *testing.T) {
	for text, want := range map[string]string{
		"shop.t: the statuses of 3 row(s) cannot be written: write sent to 3 rows of shop.t: Error 1142 (42000): UPDATE command denied": "Privileges were changed",
		"ERROR 1045 (28000): Access denied for user":                          "Privileges were changed",
		"Error 1054 (42S22): Unknown column 'message_body' in 'field list'":   "A column or a table is gone",
		"Error 1146 (42S02): Table 'shop.t' doesn't exist":                    "A column or a table is gone",
		"Error 1406 (22001): Data too long for column 'fail_reason' at row 1": "Rows that cannot be written",
		"dial tcp 127.0.0.1:3306: connect: connection refused":                "The database is away",
		"Error 1040 (HY000): Too many connections":                            "The database is away",
	} {
		got := SeeCause(text, "The database is away")
		if got != text+"; what to do: "+docs.Section(want) {
			t.Errorf("%s", got)
		}
		if strings.Contains(got, "docs/operations.md") {
			t.Errorf("the handbook has no section %q", want)
		}
	}
	st := Status{Source: SourceStatus{State: "waiting", Error: "ERROR 1045 (28000): Access denied"}, Sink: SinkStatus{Breaker: "closed"}}
	if Judge(&st, nil); len(st.Problems) != 1 || !strings.HasSuffix(st.Problems[0], "Privileges were changed") {
		t.Errorf("%q", st.Problems)
	}
}

// A database that is down is one problem with what follows from it, not four.
func TestG48_TheCauseComesFirst(t *testing.T) {
	st := Status{GapsOpen: 1, Sink: SinkStatus{Breaker: "closed"}, Lease: LeaseStatus{State: "lapsed", Error: "i/o timeout"}}
	st.Source = SourceStatus{State: "waiting", Error: "dial refused", Away: "connection refused"}
	Judge(&st, nil, SeeCause("shop.t: the statuses of 3 row(s) cannot be written: dial refused", "The database is away"))
	want := []string{
		"the database does not answer: connection refused; what to do: docs/operations/database.md, The database is away",
		"for this reason: the lease could not be renewed in time, so nothing is sent until it is: i/o timeout",
		"for this reason: shop.t: the statuses of 3 row(s) cannot be written: dial refused",
		"for this reason: the binlog is not being read: dial refused",
		"1 gap(s) in the log are not acknowledged: `canal-outbox gaps list`; what to do: docs/operations/database.md, The binlog was purged",
	}
	if !slices.Equal(st.Problems, want) || st.State != "degraded" {
		t.Errorf("%s\n%s", st.State, strings.Join(st.Problems, "\n"))
	}
}
