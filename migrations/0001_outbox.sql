-- A table for those who have none yet: the business transaction inserts a row beside its own changes, canal-outbox publishes
-- it and writes the result back. Producers set biz_type, biz_key, topic, message_body, and whatever else they need; all other
-- columns have defaults.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT UNSIGNED  NOT NULL AUTO_INCREMENT,
  -- biz_type:biz_key is the message id that consumers drop duplicates by; the unique key below makes it one.
  biz_type        VARCHAR(64)      NOT NULL,
  biz_key         VARCHAR(128)     NOT NULL,
  topic           VARCHAR(255)     NOT NULL,
  tag             VARCHAR(128)     NULL,
  -- Chooses partition and queue where that is not to be biz_key.
  sharding_key    VARCHAR(128)     NULL,
  -- A JSON object. A text type, because a JSON type rewrites what was stored.
  headers         LONGTEXT         NULL,
  -- Text, because the server then takes a producer's text in any connection character set and keeps UTF-8. Use LONGBLOB
  -- for bodies that are not text (Protobuf, Avro): both are published byte by byte. Not a JSON type: the binlog shows its
  -- values in another form than a SELECT.
  message_body    LONGTEXT         NULL,
  -- 0 pending, 1 sending (claimed by a sweep), 2 sent, 3 failed; any other code is left alone.
  status          TINYINT UNSIGNED NOT NULL DEFAULT 0,
  retry_count     INT UNSIGNED     NOT NULL DEFAULT 0,
  -- NULL: retry.max of the configuration.
  max_retry       INT UNSIGNED     NULL,
  -- NULL: at once. In the future: a delayed message, or one that waits for its retry.
  next_retry_time DATETIME(3)      NULL,
  -- The stamp of the last claim; milliseconds keep two claims apart.
  last_exec_time  DATETIME(3)      NULL,
  fail_reason     VARCHAR(1024)    NULL,
  created_by      VARCHAR(64)      NULL,
  updated_by      VARCHAR(64)      NULL,
  created_at      DATETIME(3)      NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at      DATETIME(3)      NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  UNIQUE KEY uk_message (biz_type, biz_key),
  -- What the sweep reads, page by page in this order.
  KEY idx_sweep (status, next_retry_time, id)
  -- Compared byte by byte: a message id that differs in case only is another one.
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
