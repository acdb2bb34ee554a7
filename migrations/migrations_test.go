package migrations_test

import (
	"os"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Every preset that can be mapped can be created. Package table tests that the statements run, and fit.
func TestEveryPresetHasDDL(t *testing.T) {
	for _, preset := range table.Presets() {
		ddl, err := migrations.DDL(preset, "shop.msg`s")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(ddl, "CREATE TABLE IF NOT EXISTS `shop`.`msg``s` (") || strings.Contains(ddl, "{") {
			t.Errorf("%s: %s", preset, ddl)
		}
	}
}

// The page of a layout shows its table.
func TestPagesShowTheDDL(t *testing.T) {
	for _, preset := range table.Presets() {
		if preset == "outbox" { // has no page: its SQL is complete
			continue
		}
		page, err := os.ReadFile("../docs/layouts/" + preset + ".md")
		if err != nil {
			t.Fatal(err)
		}
		ddl, err := migrations.DDL(preset, "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, columns, _ := strings.Cut(ddl, "`a`"); !strings.Contains(string(page), strings.TrimSpace(columns)) {
			t.Errorf("docs/layouts/%s.md does not show its table", preset)
		}
	}
}

func TestDDLRefusesWhatItHasNot(t *testing.T) {
	if _, err := migrations.DDL("no-such", "a"); err == nil || !strings.Contains(err.Error(), "t_local_message") {
		t.Errorf("the presets are not named: %v", err)
	}
	if _, err := migrations.DDL("t_local_message", ""); err == nil {
		t.Error("a table without a name")
	}
}
