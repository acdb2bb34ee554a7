// Package servers carries the script that puts the real servers (MySQL, MariaDB, Redis, Kafka, RocketMQ) into a private cache
// directory, so that tests, the demo and the benchmarks can start them without a container engine and without a checkout of the
// source next to the binary.
//
// It guarantees that a server named to Install is present when Install returns nil. It starts no server and owns no
// goroutine.
package servers

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed install.sh kafka.pom.xml rocketmq.pom.xml
var files embed.FS

// Cache returns the directory that install.sh fills: CANAL_OUTBOX_CACHE if set, else canal-outbox in the user's cache
// directory. MySQL 8.0 and 5.7 are in mysql-8.0 and mysql-5.7, MySQL 9.7 in mysql-root and MariaDB 11.8 in mariadb-11.8 (root file
// systems to chroot into), the brokers' jars in kafka/jars and rocketmq/jars. It fails when neither the variable nor a home directory is set.
func Cache() (string, error) {
	if dir := os.Getenv("CANAL_OUTBOX_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the test servers: %w; set CANAL_OUTBOX_CACHE", err)
	}
	return filepath.Join(dir, "canal-outbox"), nil
}

// Install brings the named servers (mysql, mysql-8.0, mysql-5.7, mysql-9.7, mariadb, mariadb-11.8, redis, kafka, rocketmq, browser, clock) into the cache unless they are there already.
// The first run downloads some hundred megabytes and may need root (see install.sh); later runs take milliseconds.
// Processes that install at the same time wait for each other. The error holds what the script printed.
func Install(ctx context.Context, names ...string) error {
	cache, err := Cache()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "canal-outbox-install-")
	if err != nil {
		return fmt.Errorf("unpack the install script: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, files); err != nil {
		return fmt.Errorf("unpack the install script: %w", err)
	}
	cmd := exec.CommandContext(ctx, "bash", append([]string{filepath.Join(dir, "install.sh")}, names...)...)
	cmd.Env = append(os.Environ(), "CANAL_OUTBOX_CACHE="+cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install %s: %w\n%s", strings.Join(names, ", "), err, out)
	}
	return nil
}
