package check

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// many is what kustomize makes of several sources, by name.
type many struct {
	sets     map[string]*apps.StatefulSet
	services map[string]*core.Service
	budgets  map[string]*policy.PodDisruptionBudget
	configs  map[string]*core.ConfigMap
	monitors map[string]*monitoring.ServiceMonitor
}

func buildMany(t *testing.T, dir string) many {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	m := many{
		map[string]*apps.StatefulSet{},
		map[string]*core.Service{},
		map[string]*policy.PodDisruptionBudget{},
		map[string]*core.ConfigMap{},
		map[string]*monitoring.ServiceMonitor{},
	}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		name := r.GetName()
		switch r.GetKind() {
		case "StatefulSet":
			m.sets[name], err = decode[apps.StatefulSet](text)
		case "Service":
			m.services[name], err = decode[core.Service](text)
		case "PodDisruptionBudget":
			m.budgets[name], err = decode[policy.PodDisruptionBudget](text)
		case "ConfigMap":
			m.configs[name], err = decode[core.ConfigMap](text)
		case "ServiceMonitor":
			m.monitors[name], err = decode[monitoring.ServiceMonitor](text)
		default:
			err = fmt.Errorf("this test knows no such kind")
		}
		if err != nil || r.GetNamespace() != "shop" {
			t.Errorf("%s %s in namespace %q: %v", r.GetKind(), name, r.GetNamespace(), err)
		}
	}
	return m
}

func decode[T any](text []byte) (*T, error) {
	v := new(T)
	return v, yaml.UnmarshalStrict(text, v)
}

const sources = "../kubernetes/sources"

// Each source has its own of everything, and what selects pods selects those of one source.
func TestKubernetesSources(t *testing.T) { checkSources(t, sources, 2) }

// A further source is a copy in which a name is replaced, as the comment says.
func TestKubernetesAnotherSource(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("../kubernetes")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"kustomization.yaml", "canal-outbox.yaml"} {
		replace(t, filepath.Join(root, "sources/shop-02", file), filepath.Join(root, "sources/shop-17", file), "shop-02", "shop-17")
	}
	list := filepath.Join(root, "sources/kustomization.yaml")
	replace(t, list, list, "  - shop-02\n", "  - shop-02\n  - shop-17\n")
	checkSources(t, filepath.Join(root, "sources"), 3)
}

func replace(t *testing.T, from, to, old, fresh string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, []byte(strings.ReplaceAll(string(text), old, fresh)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func checkSources(t *testing.T, dir string, n int) {
	m := buildMany(t, dir)
	if len(m.sets) != n || len(m.services) != n || len(m.budgets) != n || len(m.configs) != n || len(m.monitors) != 1 {
		t.Fatalf("%d sets, %d services, %d budgets, %d configurations and %d monitors of %d sources", len(m.sets), len(m.services), len(m.budgets),
			len(m.configs), len(m.monitors), n)
	}
	passwords := map[string]bool{}
	for name, set := range m.sets {
		if len(m.services[set.Spec.ServiceName].Spec.Selector) == 0 || m.budgets[name] == nil || *set.Spec.Replicas != 2 {
			t.Fatalf("%s has service %q, %d processes, and budgets are %v", name, set.Spec.ServiceName, *set.Spec.Replicas, m.budgets)
		}
		near := set.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
		for what, selector := range map[string]map[string]string{
			"the set": set.Spec.Selector.MatchLabels, "the service": m.services[set.Spec.ServiceName].Spec.Selector,
			"the budget": m.budgets[name].Spec.Selector.MatchLabels, "the affinity": near.LabelSelector.MatchLabels,
		} {
			for other, pods := range m.sets {
				if labels.SelectorFromSet(selector).Matches(labels.Set(pods.Spec.Template.Labels)) != (other == name) {
					t.Errorf("%s of %s selects %v: pods of %s have %v", what, name, selector, other, pods.Spec.Template.Labels)
				}
			}
		}
		for _, monitor := range m.monitors {
			if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(m.services[set.Spec.ServiceName].Labels)) {
				t.Errorf("the monitor does not select the service of %s", name)
			}
		}
		password := checkVolumes(t, m, set)
		if passwords[password] {
			t.Errorf("the password of %s is that of another source: secret %s", name, password)
		}
		passwords[password] = true
	}
}

// checkVolumes returns the secret that the source's password comes from.
func checkVolumes(t *testing.T, m many, set *apps.StatefulSet) (password string) {
	t.Helper()
	keys := map[string]string{}
	for _, v := range set.Spec.Template.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			if config := m.configs[v.ConfigMap.Name]; config == nil || !strings.Contains(config.Data["canal-outbox.yaml"], strings.TrimPrefix(set.Name, "canal-outbox-")) {
				t.Errorf("%s has the configuration %s", set.Name, v.ConfigMap.Name)
			}
		case v.Projected != nil && v.Secret == nil:
			for _, source := range v.Projected.Sources {
				keys[source.Secret.Items[0].Path] = source.Secret.Name
			}
		default:
			t.Errorf("%s: volume %s is none that this test knows", set.Name, v.Name)
		}
	}
	for _, v := range set.Spec.Template.Spec.Containers[0].Env {
		if file, is := strings.CutPrefix(v.Value, "/run/secrets/canal-outbox/"); is && keys[file] == "" {
			t.Errorf("%s reads %s, which no secret brings", set.Name, v.Value)
		}
	}
	return keys["mysql-password"]
}
