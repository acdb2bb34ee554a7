package table

import (
	"fmt"
	"slices"
	"strings"
)

// MovedAt is the column of a failed-message log that the outbox table does not have.
const MovedAt = "moved_at"

// MoveDDL are the statements that make the table schema.name+suffix, which rows of schema.name move to, and the same as a text for a
// client that can be run any number of times. The second statement of a failed-message log answers "duplicate column" (1060) where it
// has run before; in the text it runs only where the column is not there, which both servers understand (MySQL has no ADD COLUMN IF NOT
// EXISTS).
func MoveDDL(schema, name, suffix string) (statements []string, text string) {
	to := Quote(schema) + "." + Quote(name+suffix)
	statements = []string{"CREATE TABLE IF NOT EXISTS " + to + " LIKE " + Quote(schema) + "." + Quote(name)}
	text = statements[0] + ";"
	if suffix == FailedSuffix {
		alter := "ALTER TABLE " + to + " ADD COLUMN " + MovedAt + " DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"
		statements = append(statements, alter)
		text += "\n" + AddOnce(schema, name+suffix, MovedAt, alter)
	}
	return statements, text
}

// AddOnce is a text for a client that runs the statement which adds a column only where the column is not there.
func AddOnce(schema, name, column, alter string) string {
	return fmt.Sprintf("SET @canal_outbox = (SELECT IF(COUNT(*) = 0, %s, 'DO 0') FROM information_schema.COLUMNS\n"+
		"  WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME = '%s');\n"+
		"PREPARE canal_outbox FROM @canal_outbox;\nEXECUTE canal_outbox;\nDEALLOCATE PREPARE canal_outbox;",
		literal(alter), literal(schema), literal(name), column)
}

// literal makes a string of SQL, whatever NO_BACKSLASH_ESCAPES says: a name with a backslash is no table name of ours.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// isMoved reports, by its name, whether rows of another table move to this table.
func isMoved(names [][2]string, one [2]string) bool {
	for _, suffix := range []string{ArchiveSuffix, FailedSuffix} {
		if stem, is := strings.CutSuffix(one[1], suffix); is && slices.Contains(names, [2]string{one[0], stem}) {
			return true
		}
	}
	return false
}
