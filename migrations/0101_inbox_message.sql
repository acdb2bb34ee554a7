-- What consumers have handled: a row for each message and consumer, written in the transaction of the consumer's own changes.
-- Package inbox keeps it; docs/applications.md shows the statements for other languages.
CREATE TABLE IF NOT EXISTS {table} (
  consumer   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  -- Bytes, because text columns take a letter's other case, or a space at the end, for the same message.
  message_id VARBINARY(512) NOT NULL,
  -- How often a copy came after the first.
  copies     INT UNSIGNED   NOT NULL DEFAULT 0,
  -- UTC, whatever the zone of a connection is.
  created_at DATETIME(3)    NOT NULL,
  PRIMARY KEY (consumer, message_id),
  -- For the removal of old rows.
  KEY idx_age (consumer, created_at)
) ENGINE = InnoDB;
