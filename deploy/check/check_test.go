// Package check reads the files in deploy with the code of those who will read them: kustomize, the types of Kubernetes' and the
// Prometheus operator's API, decoded strictly, and the loader of Docker Compose. It owns no goroutine.
package check

import (
	"os"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// built is the example overlay, with everything in it.
type built struct {
	set     apps.StatefulSet
	service core.Service
	budget  policy.PodDisruptionBudget
	config  core.ConfigMap
	secret  core.Secret
	monitor monitoring.ServiceMonitor
}

func build(t *testing.T) *built {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../kubernetes/example")
	if err != nil {
		t.Fatal(err)
	}
	b := &built{}
	into := map[string]any{
		"StatefulSet": &b.set, "Service": &b.service, "PodDisruptionBudget": &b.budget, "ConfigMap": &b.config, "Secret": &b.secret,
		"ServiceMonitor": &b.monitor,
	}
	for _, r := range resources.Resources() {
		target := into[r.GetKind()]
		if target == nil {
			t.Errorf("%s: this test knows no such kind, or there are two", r.GetKind())
			continue
		}
		delete(into, r.GetKind())
		text, err := r.AsYAML()
		if err == nil {
			err = yaml.UnmarshalStrict(text, target)
		}
		if err != nil {
			t.Errorf("%s: %v", r.GetKind(), err)
		}
		if r.GetNamespace() != "shop" {
			t.Errorf("%s is in namespace %q", r.GetKind(), r.GetNamespace())
		}
	}
	for kind := range into {
		t.Errorf("there is no %s", kind)
	}
	return b
}

// What refers to something else finds it.
func TestKubernetes(t *testing.T) {
	b := build(t)
	pod := b.set.Spec.Template
	for what, selector := range map[string]map[string]string{
		"the set": b.set.Spec.Selector.MatchLabels, "the service": b.service.Spec.Selector, "the budget": b.budget.Spec.Selector.MatchLabels,
	} {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects %v, the pods have %v", what, selector, pod.Labels)
		}
	}
	if !labels.SelectorFromSet(b.monitor.Spec.Selector.MatchLabels).Matches(labels.Set(b.service.Labels)) {
		t.Errorf("the monitor selects %v, the service has %v", b.monitor.Spec.Selector.MatchLabels, b.service.Labels)
	}
	if b.set.Spec.ServiceName != b.service.Name || b.monitor.Spec.Endpoints[0].Port != b.service.Spec.Ports[0].Name {
		t.Errorf("the set names the service %s, the monitor its port %s", b.set.Spec.ServiceName, b.monitor.Spec.Endpoints[0].Port)
	}
	container := pod.Spec.Containers[0]
	if port := b.service.Spec.Ports[0].TargetPort.StrVal; port != container.Ports[0].Name {
		t.Errorf("the service leads to port %q", port)
	}
	volumes := map[string]bool{b.set.Spec.VolumeClaimTemplates[0].Name: true}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil && v.ConfigMap.Name != b.config.Name || v.Secret != nil && v.Secret.SecretName != b.secret.Name {
			t.Errorf("volume %s is of something that is not there", v.Name)
		}
	}
	for _, m := range container.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	if key := b.monitor.Spec.Endpoints[0].Authorization.Credentials; key.Name != b.secret.Name || len(b.secret.Data[key.Key]) == 0 {
		t.Errorf("the monitor reads its token from %s %s", key.Name, key.Key)
	}
	for name, probe := range map[string]*core.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Port.StrVal != container.Ports[0].Name {
			t.Errorf("the %s probe does not ask the admin port", name)
		}
	}
}

// Compose takes the sample, with each of its profiles.
func TestCompose(t *testing.T) {
	for _, profiles := range [][]string{nil, {"kafka"}} {
		options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithProfiles(profiles), cli.WithEnv(os.Environ()))
		if err != nil {
			t.Fatal(err)
		}
		project, err := options.LoadProject(t.Context())
		if err != nil {
			t.Fatalf("profiles %v: %v", profiles, err)
		}
		if _, err := project.GetService("relay"); err != nil || len(project.Services) < 8 {
			t.Errorf("profiles %v: %d services, %v", profiles, len(project.Services), err)
		}
	}
}
