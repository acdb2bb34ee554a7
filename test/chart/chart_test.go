package chart

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestMain(m *testing.M) { relay.Main(m) }

// patience bounds each step.
const patience = 3 * time.Minute

// podman is an engine with a folder of its own.
type podman struct {
	t   *testing.T
	dir string
}

func newPodman(t *testing.T) podman {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("Podman is run as root here")
	}
	for _, program := range []string{"podman", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("install podman and runc: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "chart-")
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "containers.conf"), []byte("[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=1000:1000\"]\n"), 0o600))
	p := podman{t, dir}
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range strings.Fields(p.run("ps", "--all", "--format", "{{.Names}}")) {
				t.Logf("%s:\n%s", name, p.run("logs", "--tail", "30", name))
			}
		}
		out, err := p.try("pod", "rm", "--all", "--force", "--time", "5")
		if left := p.run("ps", "--quiet"); left != "" { // it also fails for control groups that stay, which end with the namespace of run.sh
			t.Errorf("containers run on: %s, %v: %s", left, err, out)
		}
		testkit.Must(t, os.RemoveAll(dir))
	})
	return p
}

// run returns the output of a command of Podman, which must succeed.
func (p podman) run(args ...string) string {
	p.t.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("podman %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p podman) try(args ...string) (string, error) {
	cmd := exec.Command("podman", append([]string{
		"--root", filepath.Join(p.dir, "storage"), "--runroot", filepath.Join(p.dir, "run"), "--tmpdir", filepath.Join(p.dir, "tmp"),
		"--cgroup-manager=cgroupfs", "--storage-driver=vfs", "--runtime=runc",
	}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(p.dir, "containers.conf"))
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// status is what a pod's relay says by its API.
func status(port string) (st operator.Status, err error) {
	request, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+port+"/api/v1/status", nil)
	if err != nil {
		return st, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return st, err
	}
	defer answer.Body.Close()
	return st, json.NewDecoder(answer.Body).Decode(&st)
}

const token = "the token of the chart"

// The pods of the chart, as Podman runs them: the image's user, a read-only root and the mounts are enough for the relay, one of the two is
// active, and after kill -9 of that one every row is published.
func TestPodsOfTheChart(t *testing.T) {
	if os.Getenv("CHART") == "" {
		t.Skip("CHART is not set: make test-chart sets it")
	}
	p := newPodman(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	testkit.Must(t, err)
	t.Cleanup(cluster.Close)
	db := testkit.SharedMySQL(t)
	schema := db.CreateSchema(t)
	table := relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")
	table.NewLease(t)
	user := schema
	testkit.Exec(t, table.DB, fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY 'a secret'", user))
	testkit.Exec(t, table.DB, fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '%s'@'%%'", user))
	testkit.Exec(t, table.DB, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON `%s`.* TO '%s'@'%%'", schema, user))

	image := filepath.Join(p.dir, "image")
	for _, folder := range []string{"usr/bin", "tmp", "etc", "run/secrets", "var/lib/canal-outbox"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(image, folder), 0o755))
	}
	testkit.Must(t, os.Chown(filepath.Join(image, "var/lib/canal-outbox"), 65532, 65532)) // as in deploy/Dockerfile
	program, err := os.ReadFile(relay.Binary(t, ""))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(image, "usr/bin/canal-outbox"), program, 0o755)) //nolint:gosec // a program
	out, err := exec.Command("tar", "--create", "--directory", image, "--file", image+".tar", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.run("import", "--change", `ENTRYPOINT ["/usr/bin/canal-outbox"]`, "--change", "USER 65532:65532", image+".tar", "localhost/canal-outbox:chart")

	ports := make([]string, 2)
	for i := range ports {
		_, ports[i], _ = strings.Cut(testkit.FreeAddress(t), ":")
	}
	p.run("play", "kube", "--network", "host", manifests(t, p.dir, ports, fmt.Sprintf(`image: {repository: localhost/canal-outbox, tag: chart}
sources:
  - name: shop
    volume: ""
    passwordSecret: {name: shop, key: password}
    config:
      source: {address: %q, user: %s, tls: {mode: preferred}}
      tables: [{name: %s, preset: t_local_message}]
      sink: {kafka: {brokers: [%q]}}
      lease: {time: 3s}
`, db.Addr(), user, table.FullName(), cluster.ListenAddrs()[0])))

	active := -1
	role := func(want string) func() bool {
		return func() bool {
			for i, port := range ports {
				if st, err := status(port); err == nil && st.Lease.State == want {
					active = i
					return true
				}
			}
			return false
		}
	}
	testkit.WaitFor(t, patience, "a standby", role("standby"))
	testkit.WaitFor(t, patience, "an active relay", role("active"))
	container := fmt.Sprintf("r-shop-%d-canal-outbox", active)
	if got := p.run("exec", container, "/usr/bin/canal-outbox", "status", "-o", "json"); !json.Valid([]byte(got)) {
		t.Errorf("status inside the pod: %s", got)
	}
	ledger := relay.NewLoad(t, table, true, "orders")
	end := ledger.Start(t, 1000, 2)
	var pid int
	_, err = fmt.Sscan(p.run("inspect", "--format", "{{.State.Pid}}", container), &pid)
	testkit.Must(t, err)
	testkit.WaitFor(t, patience, "half of the rows", func() bool { return table.Count(t, "status = 2") > 400 })
	testkit.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	end()
	testkit.WaitFor(t, patience, "every row to be SENT", func() bool { return table.Count(t, "status <> 2") == 0 })
	testkit.WaitFor(t, patience, "the killed container to run again", func() bool {
		_, err := status(ports[active])
		return err == nil
	})
	records, err := relay.ReadKafka(t.Context(), cluster.ListenAddrs()[0], "orders")
	testkit.Must(t, err)
	account := ledger.Ledger.Compare(records)
	account.Check(t)
	t.Logf("%d rows, %d copies after kill -9 of the active pod", ledger.Ledger.Len(), account.Duplicates())
}

// manifests renders the chart for Podman.
func manifests(t *testing.T, dir string, ports []string, values string) string {
	t.Helper()
	file, secrets, pods := filepath.Join(dir, "values.yaml"), filepath.Join(dir, "secrets"), filepath.Join(dir, "pods.yaml")
	testkit.Must(t, os.WriteFile(file, []byte(values), 0o600))
	testkit.Must(t, os.Mkdir(secrets, 0o755)) //nolint:gosec // the relay's user reads it
	testkit.Must(t, os.WriteFile(filepath.Join(secrets, "mysql-password"), []byte("a secret\n"), 0o444))
	testkit.Must(t, os.WriteFile(filepath.Join(secrets, "admin-token"), []byte(token+"\n"), 0o444))
	cmd := exec.Command("go", "test", "-count=1", "-run=^TestPods$", ".")
	cmd.Dir = "../../deploy/check"
	cmd.Env = append(os.Environ(), "PODS="+pods, "VALUES="+file, "SECRETS="+secrets, "PORTS="+strings.Join(ports, ","))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return pods
}
