-- A local message table whose consumers write their own state into it.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT       NOT NULL AUTO_INCREMENT,
  -- The key, and what consumers drop duplicates by.
  message_id      VARCHAR(128) NOT NULL,
  topic           VARCHAR(64)  NOT NULL,
  content         TEXT         NOT NULL,
  -- 0 new, 1 sent; 2 consumed is the consumer's.
  state           TINYINT      NOT NULL DEFAULT 0,
  retry_count     INT          NOT NULL DEFAULT 0,
  max_retry_count INT          NOT NULL DEFAULT 5,
  next_retry_time DATETIME     NULL,
  create_time     DATETIME     NOT NULL,
  -- Written by every move.
  update_time     DATETIME     NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_message_id (message_id),
  KEY idx_state_retry (state, next_retry_time)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
