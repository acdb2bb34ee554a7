package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Passwords and tokens from files and from the environment work in every connection, and a wrong one proves that they are used.
func TestSecretsFromFilesAndEnvironment(t *testing.T) {
	s := outboxTable(t)
	testkit.Must(t, s.db.CreateUser(t.Context(), "filed", password, grants(testkit.MySQL, s.table.Schema)...))
	t.Cleanup(func() { testkit.Exec(t, s.db.Root(), "DROP USER 'filed'@'%'") })
	const sasl = "of-the-broker"
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", sasl))
	testkit.Must(t, err)
	t.Cleanup(fake.Close)
	addr := testkit.FreeAddress(t)
	yaml := func(db, broker, admin string) string {
		return fmt.Sprintf("source: {address: %q, user: filed%s}\ntables: [{name: %s, preset: t_local_message}]\n"+
			"sink: {kafka: {brokers: [%q], sasl: {mechanism: plain, user: relay%s}}}\nadmin: {listen: %q%s}",
			s.db.Addr(), db, s.table.FullName(), fake.ListenAddrs()[0], broker, addr, admin)
	}
	works := func(name string, r *child) {
		t.Helper()
		r.Start(t)
		s.insert(t, name)
		s.awaitSent(t, name)
		if got := request(t, addr, "GET", "/api/v1/status", "", "Authorization: Bearer "+token).StatusCode; got != 200 {
			t.Errorf("%s: the token is answered with %d", name, got)
		}
		for _, out := range []string{r.printed(), printedBy(r, "config", "print"), printedBy(r, "config", "validate"), printedBy(r, "doctor")} {
			for _, secret := range []string{password, sasl, token} {
				if strings.Contains(out, secret) {
					t.Errorf("%s: the secret %q is shown", name, secret)
				}
			}
		}
		r.Kill()
	}
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, []byte(content), 0o400))
		return path
	}
	files := yaml(
		fmt.Sprintf(", password_file: %q", file("db", password+"\n")),
		fmt.Sprintf(", password_file: %q", file("broker", sasl)),
		fmt.Sprintf(", token_file: %q", file("token", token+"\r\n")))
	works("files", newChild(t, files))
	variables := []string{"CANAL_OUTBOX_SOURCE_PASSWORD=" + password, "CANAL_OUTBOX_SINK_KAFKA_SASL_PASSWORD=" + sasl, "CANAL_OUTBOX_ADMIN_TOKEN=" + token}
	works("environment", newChild(t, yaml("", "", ""), variables...))

	// The environment overrides the file, so a wrong password there is refused.
	r := newChild(t, files, "CANAL_OUTBOX_SOURCE_PASSWORD=a-wrong-one")
	r.fails("a wrong password in the environment", "Access denied")
	if strings.Contains(r.printed(), "a-wrong-one") {
		t.Errorf("the password is shown:\n%s", r.printed())
	}
	newChild(t, yaml(", password_file: /nowhere/db", "", ""), variables[1:]...).fails("a missing file", "/nowhere/db")
}

// printedBy returns the output of a command, whatever its code.
func printedBy(r *child, args ...string) string {
	r.t.Helper()
	printed, _ := r.command(args...)
	return printed
}
