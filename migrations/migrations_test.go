package migrations_test

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Every preset that can be mapped can be made. That the statements run, and fit, is shown in package table.
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

func TestDDLRefusesWhatItHasNot(t *testing.T) {
	if _, err := migrations.DDL("no-such", "a"); err == nil || !strings.Contains(err.Error(), "t_local_message") {
		t.Errorf("the presets are not named: %v", err)
	}
	if _, err := migrations.DDL("t_local_message", ""); err == nil {
		t.Error("a table without a name")
	}
}
