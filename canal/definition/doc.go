// Package definition follows the columns of tables through the statements in a binlog, for logs without column names
// (binlog_row_metadata is not FULL). It is pure: text in, definitions out.
//
// Read names what a statement does to whole tables; Apply does it to a definition. It reads the dialects of MySQL 5.7 to 9 and
// MariaDB 10.11 to 11.8, as far as they change the columns of a table. Whatever else is written where a table's definition is expected
// is an error: nothing is guessed. Sources: MySQL's and MariaDB's reference manuals, "ALTER TABLE", "CREATE TABLE", "RENAME
// TABLE"; the order in which the clauses of one ALTER act is that of MySQL's prepare_fields_and_keys (sql_table.cc) and of
// MariaDB's mysql_prepare_alter_table.
package definition
