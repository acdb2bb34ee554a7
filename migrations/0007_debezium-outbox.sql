-- The outbox table of Debezium's outbox event router. It has no status: the relay reads its rows from the binlog alone, and an
-- application may delete a row in the transaction that wrote it.
CREATE TABLE IF NOT EXISTS {table} (
  -- A UUID: what consumers drop duplicates by. BINARY(16) is possible, too.
  id            CHAR(36)     NOT NULL,
  -- The topic is outbox.event. and this.
  aggregatetype VARCHAR(255) NOT NULL,
  -- The key of the message: one aggregate's messages keep their order.
  aggregateid   VARCHAR(255) NOT NULL,
  -- The header eventType.
  type          VARCHAR(255) NOT NULL,
  -- The message; NULL makes a message without a value, which deletes its key from a compacted topic.
  payload       JSON         NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
