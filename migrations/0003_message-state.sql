-- A local message table whose states are words: those of codes in the configuration, in any language.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT       NOT NULL AUTO_INCREMENT,
  gmt_create      DATETIME     NULL,
  gmt_modified    DATETIME     NULL,
  -- message_type:message_key is the message id that consumers drop duplicates by.
  message_key     VARCHAR(128) NOT NULL,
  message_type    VARCHAR(64)  NOT NULL,
  -- The broker's id, written back when the message is sent.
  message_id      VARCHAR(128) NULL,
  topic           VARCHAR(128) NOT NULL,
  message_body    TEXT         NOT NULL,
  -- pending, sent, failed; consumed and suspended are the consumers'.
  state           VARCHAR(32)  NOT NULL DEFAULT 'pending',
  retry_count     INT          NOT NULL DEFAULT 0,
  next_retry_at   DATETIME     NULL,
  last_retry_time DATETIME     NULL,
  fail_reason     TEXT         NULL,
  -- Raised by every write.
  lock_version    BIGINT       NOT NULL DEFAULT 0,
  PRIMARY KEY (id),
  UNIQUE KEY uk_message (message_key, message_type),
  KEY idx_state (state, retry_count, next_retry_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
