-- The local message table of RocketMQ systems, as their teams have it. Its names vary (create_time or gmt_create,
-- last_execute_time or last_exec_time, update_by or updated_by): canal-outbox finds them by itself.
CREATE TABLE IF NOT EXISTS {table} (
  id              BIGINT       NOT NULL AUTO_INCREMENT,
  -- biz_type:biz_key is the message id that consumers drop duplicates by; the unique key below makes it one.
  biz_type        VARCHAR(64)  NOT NULL,
  biz_key         VARCHAR(128) NOT NULL,
  topic           VARCHAR(255) NOT NULL,
  message_body    TEXT         NOT NULL,
  -- 0 to send, 1 sending (claimed by a sweep), 2 sent, 3 failed; any other code is left alone.
  status          TINYINT      NOT NULL,
  retry_count     INT          NOT NULL DEFAULT 0,
  -- NULL: at once. In the future: a delayed message, or one that waits for its retry.
  next_retry_time DATETIME     NULL,
  -- The last send, and the stamp of a sweep's claim.
  last_exec_time  DATETIME     NULL,
  fail_reason     VARCHAR(512) NULL,
  created_by      VARCHAR(64)  NOT NULL,
  updated_by      VARCHAR(64)  NOT NULL,
  gmt_create      DATETIME     NOT NULL DEFAULT CURRENT_TIMESTAMP,
  gmt_modified    DATETIME     NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id),
  UNIQUE KEY uk_biz (biz_type, biz_key),
  KEY idx_status_retry (status, next_retry_time),
  KEY idx_topic (topic)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
