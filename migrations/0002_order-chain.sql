-- The message table of an order chain: like t_local_message, but producers choose the message id, and every row has a
-- retry budget of its own.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT UNSIGNED  NOT NULL AUTO_INCREMENT,
  -- What consumers drop duplicates by.
  message_id      VARCHAR(128)     NOT NULL,
  business_type   VARCHAR(64)      NOT NULL,
  -- The key: messages of one business_id keep their order.
  business_id     VARCHAR(128)     NOT NULL,
  topic           VARCHAR(255)     NOT NULL,
  tag             VARCHAR(128)     NULL,
  -- Chooses partition and queue where that is not to be business_id.
  sharding_key    VARCHAR(128)     NULL,
  -- A JSON object. A text type, because a JSON type rewrites what was stored.
  headers         LONGTEXT         NULL,
  -- Text or LONGBLOB, as in t_local_message, and for the same reasons.
  message_body    LONGTEXT         NULL,
  -- 0 pending, 1 sending (claimed by a sweep), 2 sent, 3 failed; any other code is left alone.
  status          TINYINT UNSIGNED NOT NULL DEFAULT 0,
  retry_count     INT UNSIGNED     NOT NULL DEFAULT 0,
  max_retry       INT UNSIGNED     NOT NULL DEFAULT 5,
  -- NULL: at once. In the future: a delayed message, or one that waits for its retry.
  next_retry_time DATETIME(3)      NULL,
  -- The stamp of the last claim; milliseconds keep two claims apart.
  last_exec_time  DATETIME(3)      NULL,
  fail_reason     VARCHAR(1024)    NULL,
  updated_by      VARCHAR(64)      NULL,
  created_at      DATETIME(3)      NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  updated_at      DATETIME(3)      NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  UNIQUE KEY uk_message (message_id),
  -- An order's messages, for people.
  KEY idx_business (business_type, business_id),
  -- What the sweep reads, page by page in this order.
  KEY idx_sweep (status, next_retry_time, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
