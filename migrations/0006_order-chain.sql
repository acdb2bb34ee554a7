-- The message table of an order chain: producers choose the message id, and every row has a limit of attempts.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT      NOT NULL AUTO_INCREMENT,
  -- What consumers drop duplicates by; it travels as the property messageId too.
  message_id      VARCHAR(64) NOT NULL,
  business_type   VARCHAR(32) NOT NULL,
  -- The key: messages of one business_id keep their order.
  business_id     VARCHAR(64) NOT NULL,
  topic           VARCHAR(64) NOT NULL,
  message_body    TEXT        NOT NULL,
  -- 0 pending, 1 sending (claimed by a sweep), 2 sent, 3 failed; any other code is left alone.
  status          TINYINT     NOT NULL DEFAULT 0,
  retry_count     INT         NOT NULL DEFAULT 0,
  max_retry       INT         NOT NULL DEFAULT 5,
  next_retry_time DATETIME    NULL,
  create_time     DATETIME    NOT NULL,
  -- Written by every move; the stamp of a sweep's claim as well.
  update_time     DATETIME    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_message_id (message_id),
  KEY idx_status_retry (status, next_retry_time),
  KEY idx_business (business_type, business_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
