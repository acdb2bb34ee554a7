package check

import (
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // the loader says of each link that it follows it
	os.Exit(m.Run())
}

const chartDir = "../helm/canal-outbox"

// objects are what the chart makes of values, by name. The release is called r, in the namespace shop.
type objects struct {
	sets     map[string]*apps.StatefulSet
	services map[string]*core.Service
	budgets  map[string]*policy.PodDisruptionBudget
	configs  map[string]*core.ConfigMap
	monitors map[string]*monitoring.ServiceMonitor
	rules    map[string]*monitoring.PrometheusRule
	policies map[string]*network.NetworkPolicy
}

// render makes the objects, each decoded strictly by the type of its kind.
func render(values map[string]any) (*objects, error) {
	c, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "r", Namespace: "shop", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	o := &objects{
		map[string]*apps.StatefulSet{},
		map[string]*core.Service{},
		map[string]*policy.PodDisruptionBudget{},
		map[string]*core.ConfigMap{},
		map[string]*monitoring.ServiceMonitor{},
		map[string]*monitoring.PrometheusRule{},
		map[string]*network.NetworkPolicy{},
	}
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
			if err := o.add([]byte(doc)); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

func (o *objects) add(doc []byte) error {
	var head struct {
		Kind     string
		Metadata struct{ Name string }
	}
	if err := yaml.Unmarshal(doc, &head); err != nil || head.Kind == "" {
		return err
	}
	name := head.Metadata.Name
	switch head.Kind {
	case "StatefulSet":
		return into(o.sets, name, doc)
	case "Service":
		return into(o.services, name, doc)
	case "PodDisruptionBudget":
		return into(o.budgets, name, doc)
	case "ConfigMap":
		return into(o.configs, name, doc)
	case "ServiceMonitor":
		return into(o.monitors, name, doc)
	case "PrometheusRule":
		return into(o.rules, name, doc)
	}
	return into(o.policies, name, doc) // any other kind fails here
}

func into[T any](list map[string]*T, name string, doc []byte) error {
	list[name] = new(T)
	return yaml.UnmarshalStrict(doc, list[name])
}

func read(t *testing.T, file string) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// Each file of values makes objects that Kubernetes takes, that find each other, and whose configurations the relay takes.
func TestChart(t *testing.T) {
	files, err := filepath.Glob("../helm/values/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	program := filepath.Join(t.TempDir(), "canal-outbox")
	if out, err := exec.Command("go", "-C", "../..", "build", "-o", program, "./cmd/canal-outbox").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			values := read(t, file)
			o, err := render(values)
			if err != nil {
				t.Fatal(err)
			}
			sources := values["sources"].([]any)
			if len(o.sets) != len(sources) || len(o.services) != len(sources) {
				t.Fatalf("%d sets and %d services of %d sources", len(o.sets), len(o.services), len(sources))
			}
			for _, set := range o.sets {
				o.check(t, set)
				validate(t, program, o.configs[set.Name].Data["canal-outbox.yaml"])
			}
			for _, m := range lint.AllWithKubeVersionAndSchemaValidation(chartDir, values, "shop", nil, false).Messages {
				if m.Severity > support.InfoSev {
					t.Errorf("helm lint: %s", m)
				}
			}
		})
	}
}

// check looks at what refers to something else: it finds that, and nothing of another source.
func (o *objects) check(t *testing.T, set *apps.StatefulSet) {
	t.Helper()
	pod := set.Spec.Template
	near := pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
	selectors := map[string]map[string]string{
		"the set": set.Spec.Selector.MatchLabels, "the service": o.services[set.Spec.ServiceName].Spec.Selector, "the affinity": near.LabelSelector.MatchLabels,
	}
	if budget := o.budgets[set.Name]; (budget != nil) != (*set.Spec.Replicas > 1) {
		t.Errorf("%d replicas, budget %v", *set.Spec.Replicas, budget)
	} else if budget != nil {
		selectors["the budget"] = budget.Spec.Selector.MatchLabels
	}
	for what, selector := range selectors {
		for _, other := range o.sets {
			if len(selector) == 0 || labels.SelectorFromSet(selector).Matches(labels.Set(other.Spec.Template.Labels)) != (other == set) {
				t.Errorf("%s of %s selects %v: pods of %s have %v", what, set.Name, selector, other.Name, other.Spec.Template.Labels)
			}
		}
	}
	for _, m := range o.monitors {
		if !labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(labels.Set(o.services[set.Spec.ServiceName].Labels)) {
			t.Errorf("the monitor does not select the service of %s", set.Name)
		}
	}
	for _, p := range o.policies {
		if !labels.SelectorFromSet(p.Spec.PodSelector.MatchLabels).Matches(labels.Set(pod.Labels)) {
			t.Errorf("the policy does not select the pods of %s", set.Name)
		}
	}
	container := pod.Spec.Containers[0]
	for name, probe := range map[string]*core.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Port.StrVal != container.Ports[0].Name {
			t.Errorf("the %s probe does not ask the admin port", name)
		}
	}
	o.checkVolumes(t, set)
}

func (o *objects) checkVolumes(t *testing.T, set *apps.StatefulSet) {
	t.Helper()
	pod, volumes, files := set.Spec.Template.Spec, map[string]bool{}, []string{}
	for _, v := range set.Spec.VolumeClaimTemplates {
		volumes[v.Name] = true
	}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil && o.configs[v.ConfigMap.Name] == nil {
			t.Errorf("there is no configuration %s", v.ConfigMap.Name)
		}
		if v.Projected != nil {
			for _, source := range v.Projected.Sources {
				files = append(files, "/run/secrets/canal-outbox/"+source.Secret.Items[0].Path)
			}
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	for _, v := range pod.Containers[0].Env {
		if strings.HasPrefix(v.Value, "/run/secrets/") && !slices.Contains(files, v.Value) {
			t.Errorf("%s is %s, which no secret brings", v.Name, v.Value)
		}
	}
}

// validate gives a configuration to the relay, with files where it names secrets.
func validate(t *testing.T, program, config string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"canal-outbox/mysql-password", "canal-outbox/admin-token", "shop-kafka/password", "shop-mysql-ca/ca.crt"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("a-secret-of-some-length"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "canal-outbox.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "/run/secrets", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "config", "validate", "--config", file)
	cmd.Env = append(os.Environ(), "CANAL_OUTBOX_SOURCE_PASSWORD_FILE="+dir+"/canal-outbox/mysql-password",
		"CANAL_OUTBOX_ADMIN_TOKEN_FILE="+dir+"/canal-outbox/admin-token", "CANAL_OUTBOX_ADMIN_LISTEN=0.0.0.0:9180")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the relay does not take it: %v\n%s\n%s", err, out, config)
	}
}

// The page of each relay has those of the other sources, and no other.
func TestChartPeers(t *testing.T) {
	o, err := render(read(t, "../helm/values/many.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Admin struct{ Peers []struct{ URL string } }
	}
	if err := yaml.Unmarshal([]byte(o.configs["r-pay"].Data["canal-outbox.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, p := range config.Admin.Peers {
		urls = append(urls, p.URL)
	}
	want := []string{
		"http://r-shop-01-0.r-shop-01.shop.svc:9180", "http://r-shop-01-1.r-shop-01.shop.svc:9180",
		"http://r-shop-02-0.r-shop-02.shop.svc:9180", "http://r-shop-02-1.r-shop-02.shop.svc:9180",
	}
	if !slices.Equal(urls, want) {
		t.Errorf("%v", urls)
	}
}

// The alerts and the dashboards are those of deploy, as they are.
func TestChartMonitoring(t *testing.T) {
	o, err := render(read(t, "../helm/values/monitoring.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("../prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file, chart monitoring.PrometheusRuleSpec
	if err := yaml.Unmarshal(alerts, &file); err != nil {
		t.Fatal(err)
	}
	if chart = o.rules["r"].Spec; len(file.Groups) == 0 || !reflect.DeepEqual(chart, file) {
		t.Errorf("other alerts: %+v", chart)
	}
	for _, name := range []string{"canal-outbox.json", "canal-outbox-fleet.json"} {
		dashboard, err := os.ReadFile("../grafana/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(o.configs["r-dashboard"].Data[name]) != strings.TrimSpace(string(dashboard)) {
			t.Errorf("%s is another one", name)
		}
	}
}

// Wrong values are refused with the key.
func TestChartRefuses(t *testing.T) {
	const source = `{name: a, passwordSecret: {name: s, key: k}, config: {source: {address: a, user: u}, tables: [{}], sink: {}}}`
	for name, x := range map[string]struct{ old, new, want string }{
		"no source":           {source, ``, "sources"},
		"an unknown key":      {`{sources`, `{sorces: [], sources`, "sorces"},
		"a password":          {`user: u`, `user: u, password: p`, "source"},
		"a state directory":   {`sink: {}`, `sink: {}, checkpoint: {dir: /x}`, "checkpoint"},
		"three replicas":      {`name: a,`, `name: a, replicas: 3,`, "replicas"},
		"a name with a slash": {`name: a,`, `name: a/b,`, "name"},
		"no secret":           {`passwordSecret: {name: s, key: k}, `, ``, "passwordSecret"},
		"the same name twice": {source, source + `, ` + source, `the name "a"`},
	} {
		text := strings.Replace(`{sources: [`+source+`]}`, x.old, x.new, 1)
		var values map[string]any
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
