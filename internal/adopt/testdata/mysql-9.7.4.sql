-- Written by `canal-outbox init` for /etc/canal-outbox/canal-outbox.yaml
-- Run it as an administrator of MySQL 9.7.4 at db.internal:3306.

-- The relay's account.
CREATE USER IF NOT EXISTS 'canal''outbox'@'10.0.%' IDENTIFIED BY 'se''cr\\et';

-- The index.
ALTER TABLE `shop`.`t_local_message` ADD INDEX i (status), ALGORITHM=INPLACE, LOCK=NONE;

-- Its privileges.
GRANT REPLICATION CLIENT ON *.* TO 'canal''outbox'@'10.0.%';
GRANT SELECT, UPDATE ON `shop`.`t_local_message` TO 'canal''outbox'@'10.0.%';
GRANT REPLICATION SLAVE ON *.* TO 'canal''outbox'@'10.0.%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `shop`.`canal_outbox_lease` TO 'canal''outbox'@'10.0.%';
GRANT SESSION_VARIABLES_ADMIN ON *.* TO 'canal''outbox'@'10.0.%';
