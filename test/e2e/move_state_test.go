package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A relay moves to another directory with its state, exported while it worked: nothing is lost and nothing sent twice, although rows
// were committed and published between the export and the stop. What would put a state where it does not belong is refused.
func TestMoveStateToAnotherDirectory(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLab(t, testkit.SharedDatabase(t, testkit.MySQL))
	l.start()
	before := keys("before", 30)
	l.commit(before...)
	l.sent()
	l.commit("in flight") // or not any more: the export is of any time
	file := filepath.Join(l.dir, "state.jsonl")
	out, err := os.Create(file)
	testkit.Must(t, err)
	testkit.Must(t, errors.Join(l.admin().Export(ctx, out), out.Close()))
	l.commit("after the export")
	l.sent()
	bring := func(force, dryRun bool) (app.Imported, error) {
		t.Helper()
		in, err := os.Open(file)
		testkit.Must(t, err)
		defer in.Close()
		return app.ImportState(ctx, l.config(), in, force, dryRun)
	}
	refused := func(words string, force bool) {
		t.Helper()
		_, err := bring(force, false)
		var coded *operator.Error
		if !errors.As(err, &coded) || coded.Code != operator.CodeRefused || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want it refused because %s", err, words)
		}
	}
	refused("in use by another canal-outbox", true)
	l.stop()
	refused("and the import goes back to", false)
	old := l.dir
	l.commit("while stopped")

	l.dir, err = os.MkdirTemp("", "faults")
	testkit.Must(t, err)
	defer os.RemoveAll(old)
	if done, err := bring(false, true); err != nil || done.Applied || len(done.Notes) != 0 {
		t.Errorf("the dry run: %+v, %v", done, err)
	}
	if list, err := os.ReadDir(l.dir); err != nil || len(list) != 0 {
		t.Errorf("the dry run left %v, %v", list, err)
	}
	other := l.source
	l.source = testkit.SharedDatabase(t, testkit.MariaDB).Addr()
	refused("the state is of another server", false)
	l.source = testkit.FreeAddress(t)
	refused("cannot be asked who it is", false)
	l.source = other
	done, err := bring(false, false)
	if err != nil || !done.Applied || done.Position.IsZero() {
		t.Fatalf("imported %+v, %v", done, err)
	}
	l.start()
	l.commit("at the new place")
	all := append(before, "in flight", "after the export", "while stopped", "at the new place")
	l.account(all...)
	l.wantGaps()

	// With force the state is replaced, never silently: what was there stays for a look, and what goes back is said.
	l.stop()
	done, err = bring(true, false)
	if err != nil || done.Replaced == "" || len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "goes back to") {
		t.Errorf("with force: %+v, %v", done, err)
	}
	l.start()
	if changes, err := l.admin().Audit(ctx, 1); err != nil || len(changes) != 1 || !strings.HasPrefix(changes[0].What, "checkpoint import") || changes[0].Before == "" {
		t.Errorf("recorded %+v, %v", changes, err)
	}
	l.account(all...)
}
