-- A local message table with a text key: the message id is the primary key, and the topic follows from the event type.
CREATE TABLE IF NOT EXISTS {table} (
  -- A UUID: the key, and what consumers drop duplicates by.
  message_id    VARCHAR(64)  NOT NULL,
  event_type    VARCHAR(100) NOT NULL,
  payload       TEXT         NOT NULL,
  -- PENDING, SENT, FAILED
  status        VARCHAR(20)  NOT NULL,
  retry_count   INT          NOT NULL DEFAULT 0,
  created_at    TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  sent_at       TIMESTAMP    NULL,
  error_message TEXT         NULL,
  PRIMARY KEY (message_id),
  KEY idx_status_created (status, created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
