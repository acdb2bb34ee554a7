package checkpoint

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func TestGaps(t *testing.T) {
	files := vfs.NewMem()
	reg := prometheus.NewRegistry()
	s, err := Open(stateDir, Options{FS: files, Registerer: reg, Simulated: true})
	fatal(t, err)
	for i, cause := range outbox.GapCauses() {
		id, err := s.AddGap(outbox.Gap{From: *at(1), To: *at(9), Cause: cause})
		fatal(t, err)
		if id != uint64(i+1) {
			t.Fatalf("gap %d has number %d", i+1, id)
		}
	}
	fatal(t, s.AckGap(2))
	fatal(t, s.AckGap(2))
	if err := s.AckGap(99); !errors.Is(err, ErrUnknownGap) {
		t.Fatalf("AckGap(99): %v", err)
	}
	causes := len(outbox.GapCauses())
	if got := value(t, reg, "canal_outbox_gaps_unacknowledged"); got != float64(causes-2) {
		t.Errorf("%v unacknowledged gaps", got)
	}
	if got := value(t, reg, "canal_outbox_gaps_total"); got != float64(causes) {
		t.Errorf("%v gaps in all", got)
	}
	fatal(t, s.Close())
	s = openMem(t, files)
	gaps, err := s.Gaps()
	fatal(t, err)
	for i, gap := range gaps {
		acknowledged := gap.Cause == outbox.GapFirstStart || gap.ID == 2
		if gap.ID != uint64(i+1) || gap.Acknowledged != acknowledged || gap.At.IsZero() || gap.To != *at(9) {
			t.Errorf("%+v", gap)
		}
	}
	if n := s.Stats().UnacknowledgedGaps; n != causes-2 || len(gaps) != causes {
		t.Errorf("%d gaps, %d unacknowledged", len(gaps), n)
	}
	fatal(t, s.Close())
}

func TestSchemas(t *testing.T) {
	files := vfs.NewMem()
	s := openMem(t, files)
	fatal(t, s.Schemas.Save("shop.t", []byte("one")))
	fatal(t, s.Schemas.Save("shop.t", []byte("two")))
	fatal(t, s.Schemas.Save("shop.u", []byte("three")))
	fatal(t, s.Schemas.Save("shop.u", nil))
	fatal(t, s.Close())
	s = openMem(t, files)
	got, err := s.Schemas.All()
	fatal(t, err)
	if len(got) != 1 || string(got["shop.t"]) != "two" {
		t.Fatalf("%q", got)
	}
	fatal(t, s.Close())
}

// All series exist from the start, a scrape works at any time, and the next Store finds the registry free.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	files := vfs.NewMem()
	for range 2 {
		s, err := Open(stateDir, Options{FS: files, Registerer: reg, Simulated: true})
		fatal(t, err)
		families, err := reg.Gather()
		fatal(t, err)
		if len(families) != 9 {
			t.Errorf("%d metrics", len(families))
		}
		fatal(t, s.Commit([]outbox.Completion{{Identity: outbox.Identity{ID: "1"}}}, nil, at(5), 0))
		if got := value(t, reg, "canal_outbox_journal_entries"); got != 1 {
			t.Errorf("%v journal entries", got)
		}
		if got := value(t, reg, "canal_outbox_checkpoint_disk_bytes"); got <= 0 {
			t.Errorf("%v bytes", got)
		}
		if _, err := Open("elsewhere", Options{FS: files, Registerer: reg, Simulated: true}); err == nil {
			t.Error("two stores share the series of one registry")
		}
		fatal(t, s.Close())
		if families, err = reg.Gather(); err != nil || len(families) != 0 {
			t.Errorf("%d metrics after Close, %v", len(families), err)
		}
	}
}

// value sums a metric over its labels.
func value(t *testing.T, reg *prometheus.Registry, name string) (total float64) {
	t.Helper()
	families, err := reg.Gather()
	fatal(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return total
}

// The messages of the engine reach the log at the right level. They cost little when that level is off.
func TestEngineLog(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	s, err := Open(stateDir, Options{FS: vfs.NewMem(), Log: zap.New(core), OnFatal: mustNotFail(t), Simulated: true})
	fatal(t, err)
	s.files.listener().DiskSlow(pebble.DiskSlowInfo{Path: "000007.log"})
	for range 3 { // as on a full disk: one line is enough
		s.files.listener().BackgroundError(errors.New("no space left on device"))
	}
	fatal(t, s.Close())
	if n := logs.FilterLevelExact(zap.WarnLevel).FilterMessageSnippet("slow").Len(); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if n := logs.FilterLevelExact(zap.ErrorLevel).FilterMessageSnippet("space").Len(); n != 1 {
		t.Errorf("%d errors", n)
	}
	if n := logs.FilterLevelExact(zap.InfoLevel).Len(); n != 0 {
		t.Errorf("%d lines at info", n)
	}
}

// The room on the file system is a metric while the store is open, so that an alert comes before the disk is full.
func TestG37_FreeBytesOfTheStateDirectory(t *testing.T) {
	files, reg := vfs.NewMem(), prometheus.NewRegistry()
	s, err := Open(stateDir, Options{FS: files, Registerer: reg, Simulated: true})
	fatal(t, err)
	for _, free := range []uint64{5 << 30, 100 << 20, 1} {
		files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free})
		if got := value(t, reg, "canal_outbox_state_free_bytes"); got != float64(free) {
			t.Errorf("the metric is %v, want %d", got, free)
		}
		if n, err := s.Free(); n != free || err != nil {
			t.Errorf("Free: %d, %v; want %d", n, err, free)
		}
	}
	fatal(t, s.Close())
}
