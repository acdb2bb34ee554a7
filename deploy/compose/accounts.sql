-- Accounts of the sample. They have no passwords, because this server is reachable from the containers of the sample only.
CREATE DATABASE IF NOT EXISTS shop;
CREATE USER IF NOT EXISTS 'relay'@'%';
GRANT REPLICATION SLAVE, REPLICATION CLIENT, SESSION_VARIABLES_ADMIN ON *.* TO 'relay'@'%';
-- CREATE is for the service "tables", which runs `canal-outbox migrate`; a relay needs SELECT and UPDATE, and all four on the table of
-- its lease (canal_outbox_lease).
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON shop.* TO 'relay'@'%';
CREATE USER IF NOT EXISTS 'shop'@'%';
GRANT SELECT, INSERT ON shop.* TO 'shop'@'%';
