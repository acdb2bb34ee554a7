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
	"github.com/canal-outbox/canal-outbox/outbox"
)

// C09: the state directory is gone, as with a pod without a volume.
func TestC09_StateDirectoryLost(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start()
		before := keys("before", 300)
		l.commit(before...)
		l.sent()
		l.stop()
		l.commit("missed")
		testkit.Must(t, os.RemoveAll(l.dir))
		l.start()
		l.commit("after")
		l.account(append(before, "missed", "after")...)
	})
}

// C05: the state directory is damaged. The relay keeps it aside for inspection and sweeps the table.
func TestC05_StateDirectoryDamaged(t *testing.T) {
	t.Parallel()
	l := newLab(t, testkit.SharedMySQL(t))
	l.start()
	before := keys("before", 100)
	l.commit(before...)
	l.sent()
	l.stop()
	damaged := 0
	l.files(func(path string, content []byte) {
		if name := filepath.Base(path); name == "LOCK" || len(content) < 64 {
			return
		}
		for i := len(content) / 4; i < len(content)/4+32; i++ {
			content[i] ^= 0xff
		}
		testkit.Must(t, os.WriteFile(path, content, 0o600))
		damaged++
	})
	if damaged == 0 {
		t.Fatal("nothing was damaged")
	}
	l.commit("missed")
	l.start()
	l.commit("after")
	want := append(before, "missed", "after")
	l.account(want...)
	l.wantGaps("state")
	if aside := l.logs.FilterMessageSnippet("moved aside").All(); len(aside) != 1 {
		t.Errorf("%d lines report the damage", len(aside))
	} else if name, _ := aside[0].ContextMap()["aside"].(string); !exists(filepath.Join(l.dir, name)) {
		t.Errorf("the damaged state is not in %q", name)
	}
	l.stop()
	l.start()
	l.account(want...)
	l.wantGaps("state")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// files calls f for each file of the state directory.
func (l *lab) files(f func(path string, content []byte)) {
	l.t.Helper()
	testkit.Must(l.t, filepath.WalkDir(l.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil {
			f(path, content)
		}
		return err
	}))
}

// C10: an old copy of the state directory is restored. The log between is read again; the table says what was sent.
func TestC10_OldSnapshotRestored(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start()
		l.commit("first")
		l.account("first")
		l.stop()
		snapshot := t.TempDir()
		testkit.Must(t, os.CopyFS(snapshot, os.DirFS(l.dir)))
		l.start()
		later := keys("later", 800)
		for i := 0; i < len(later); i += 20 {
			l.exec(insert(later[i : i+20]...))
		}
		l.sent()
		l.exec("DELETE FROM t_local_message WHERE biz_key = 'later3'") // by the application, after it was published
		l.stop()
		l.commit("missed")
		testkit.Must(t, os.RemoveAll(l.dir))
		testkit.Must(t, os.CopyFS(l.dir, os.DirFS(snapshot)))
		l.start()
		l.commit("after")
		l.account(append(later, "first", "missed", "after")...)
	})
}

// end of the log, as `SHOW BINARY LOG STATUS` has it.
func (l *lab) position() outbox.Position {
	l.t.Helper()
	var at outbox.Position
	l.wait("the relay to know where the log ends", func() bool {
		status, err := l.admin().Status(context.Background())
		testkit.Must(l.t, err)
		at = status.Positions.Server
		return at.File != ""
	})
	return at
}

// offline moves the checkpoint of a stopped relay.
func (l *lab) offline(target operator.Target) operator.Preview {
	l.t.Helper()
	o, err := app.OpenOffline(l.t.Context(), l.config(), true)
	testkit.Must(l.t, err)
	p, err := o.SetCheckpoint(context.Background(), target)
	testkit.Must(l.t, errors.Join(err, o.Close()))
	return p
}

// An operator moves the checkpoint of a stopped relay: back, and nothing is repeated; forward, and nothing is lost.
func TestCheckpointSetWhileStopped(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})) // its log is short, and parts of it are read again
		l.start()
		at := l.position()
		want := keys("a", 300)
		l.commit(want...)
		l.sent()
		l.stop()

		back := operator.Target{File: at.File, Pos: uint64(at.Offset), DryRun: true}
		preview := l.offline(back)
		if preview.Applied || !strings.Contains(strings.Join(preview.Notes, "\n"), "read again") {
			t.Errorf("preview of a move back: %+v", preview)
		}
		back.DryRun = false
		if preview = l.offline(back); !preview.Applied {
			t.Errorf("the move back was not done: %+v", preview)
		}
		l.commit("while down")
		want = append(want, "while down")
		l.start()
		l.account(want...)
		l.stop()

		l.commit(keys("skipped", 100)...)
		want = append(want, keys("skipped", 100)...)
		preview = l.offline(operator.Target{Latest: true, DryRun: true})
		if notes := strings.Join(preview.Notes, "\n"); preview.Applied || !strings.Contains(notes, "not read") || !strings.Contains(notes, "gap") {
			t.Errorf("preview of a move forward: %+v", preview)
		}
		l.offline(operator.Target{Latest: true})
		l.start()
		l.commit("after")
		want = append(want, "after")
		l.sent() // by the sweep that the preview promised
		l.account(want...)
		l.wantGaps("operator")
	})
}

// The same while the relay runs and producers write: back, forward, to the oldest log, and back by the history.
func TestCheckpointSetWhileRunning(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})) // its log is short, and parts of it are read again
		l.start()
		at := l.position()
		want := keys("load", 1200)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; i < len(want); i += 2 {
				if _, err := l.sql.Exec(insert(want[i], want[i+1])); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		committed := func() (n int) {
			testkit.Must(t, l.sql.QueryRow("SELECT COUNT(*) FROM t_local_message").Scan(&n))
			return n
		}
		entries, err := l.admin().History(context.Background(), 1)
		testkit.Must(t, err)
		for i, target := range []operator.Target{
			{File: at.File, Pos: uint64(at.Offset)}, {Latest: true}, {Earliest: true}, {Entry: &entries[0].Number}, {Latest: true},
		} {
			l.wait("some load", func() bool { return committed() >= (i+1)*200 })
			preview, err := l.admin().SetCheckpoint(context.Background(), target)
			if err != nil || !preview.Applied || len(preview.Notes) == 0 {
				t.Fatalf("move %d: %+v, %v", i, preview, err)
			}
			l.reading()
		}
		<-done
		l.account(want...)
	})
}

// An order that cannot be carried out changes nothing.
func TestCheckpointSetRefusesWhatTheServerNeverHad(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start()
		l.commit("a")
		l.account("a")
		before, err := l.admin().Checkpoint(context.Background())
		testkit.Must(t, err)
		future := "0-999999-1"
		if flavor == testkit.MySQL {
			future = "00000000-0000-0000-0000-000000000001:1-5"
		}
		for _, target := range []operator.Target{{File: "binlog.987654", Pos: 4}, {File: before.Position.File, Pos: 1 << 31}, {GTID: future}} {
			_, err := l.admin().SetCheckpoint(context.Background(), target)
			var coded *operator.Error
			if !errors.As(err, &coded) || coded.Code != operator.CodeRefused {
				t.Errorf("%+v: %v", target, err)
			}
		}
		l.commit("b")
		l.account("a", "b")
	})
}
