-- Which relay is active, of those that share tables: a row for each set of tables that is relayed together. Package lease keeps it.
CREATE TABLE IF NOT EXISTS {table} (
  -- The number of the acquisition. Row 0 is the counter: its log_offset is the newest number, its process a text made with it.
  epoch       BIGINT UNSIGNED NOT NULL,
  -- The state directory, and the one start of a machine and of a process, that hold it. The process ends with its lease time.
  holder      VARCHAR(64)     NOT NULL,
  process     VARCHAR(64)     NOT NULL,
  -- For people: the machine and the state directory.
  host        VARCHAR(255)    NOT NULL,
  -- A JSON list of schema.table. Each is in one row at most.
  table_names MEDIUMTEXT      NOT NULL,
  -- UTC. NULL: the holder has ended in order.
  expires_at  DATETIME(3)     NULL,
  -- Where the log was done with: the server, as JSON, and the end of a transaction.
  source      VARCHAR(255)    NOT NULL DEFAULT '',
  log_file    VARCHAR(255)    NOT NULL DEFAULT '',
  log_offset  BIGINT UNSIGNED NOT NULL DEFAULT 0,
  gtid_set    MEDIUMTEXT      NOT NULL,
  -- An operator's pause, as JSON; empty while there is none.
  paused      VARCHAR(4000)   NOT NULL DEFAULT '',
  -- Published rows that their table does not show as SENT, as JSON; NULL while there are none. A relay that takes over does not send them.
  -- And when the holder last showed that it lives, and up to when it had recorded all that it published.
  sent_rows   MEDIUMTEXT      NULL,
  PRIMARY KEY (epoch)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
