// Package migrations has the SQL of the tables that the relay uses: one file for each table preset.
//
// Guarantee: texts only. Nothing here connects to a server or owns a goroutine; the caller runs the statements.
package migrations

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed *.sql
var files embed.FS

// placeholder stands for the table's name in the files.
const placeholder = "{table}"

// DDL returns the CREATE TABLE statement of a preset. table is its name, or schema.table, and becomes a quoted identifier.
func DDL(preset, table string) (string, error) {
	byPreset, err := list()
	if err != nil {
		return "", err
	}
	file, ok := byPreset[preset]
	if !ok {
		return "", fmt.Errorf("preset %q has no DDL: use one of %s", preset, strings.Join(slices.Sorted(maps.Keys(byPreset)), ", "))
	}
	if table == "" {
		return "", fmt.Errorf("DDL of preset %q: the table has no name", preset)
	}
	text, err := files.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("DDL of preset %q: %w", preset, err)
	}
	var quoted []string
	for _, part := range strings.SplitN(table, ".", 2) {
		quoted = append(quoted, "`"+strings.ReplaceAll(part, "`", "``")+"`")
	}
	return strings.ReplaceAll(string(text), placeholder, strings.Join(quoted, ".")), nil
}

// list maps presets to files, which are named number_preset.sql.
func list() (map[string]string, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	byPreset := map[string]string{}
	for _, entry := range entries {
		_, preset, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		byPreset[preset] = entry.Name()
	}
	return byPreset, nil
}
