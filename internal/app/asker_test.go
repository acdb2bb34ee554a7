package app

import (
	"strconv"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A sweep asks for the end of the log with each page: by one statement, also after the server has been another one.
func TestTheEndOfTheLogIsOneStatement(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db, err := server.Open(server.Config{Address: testkit.SharedDatabase(t, flavor).Addr(), User: "root"}, nil, server.Session{MaxConns: 1})
			testkit.Must(t, err)
			defer func() { testkit.Must(t, db.Close()) }()
			questions := func() int {
				rows, err := server.Show(t.Context(), db, "SHOW SESSION STATUS LIKE 'Questions'")
				testkit.Must(t, err)
				n, err := strconv.Atoi(rows[0]["value"])
				testkit.Must(t, err)
				return n
			}
			a := &asker{db: db}
			_, want, err := a.Look(t.Context())
			testkit.Must(t, err)
			end, err := a.End(t.Context())
			testkit.Must(t, err)
			if end.Compare(want) < 0 || end.File == "" || end.GTIDs != "" {
				t.Errorf("the end is %+v, a look before it gave %+v", end, want)
			}
			const pages = 10
			begin := questions()
			for range pages {
				if _, err := a.End(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := questions() - begin; n > pages+1 { // and the question for the number itself
				t.Errorf("%d statements for %d pages", n, pages)
			}
			other := server.Info{ID: server.ID{Flavor: outbox.MySQL}, Major: 9} // asks by a statement that this server does not know
			if flavor == testkit.MySQL {
				other = server.Info{ID: server.ID{Flavor: outbox.MariaDB}, Major: 11}
			}
			if _, err := other.FileEnd(t.Context(), db); err == nil {
				t.Skip("this release knows the other flavor's statement: there is nothing to mistake")
			}
			a.known.Store(&other)
			if _, err := a.End(t.Context()); err == nil {
				t.Error("the server knows the other flavor's statement")
			}
			if _, err := a.End(t.Context()); err != nil {
				t.Errorf("after a statement that the server does not know: %v", err)
			}
		})
	}
}
