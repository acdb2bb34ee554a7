package check

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestPods writes what the chart makes of the values in the file VALUES into the file PODS, as manifests that `podman play kube` runs on one
// machine: a Pod for each replica in place of the StatefulSet. Podman 4.3 has no projected volumes and probes with programs of the image,
// which has none but the relay; it gives volumes of one name to all pods, and all pods share the network of the host. So the secrets are the
// folder SECRETS, the probes are left out, the volume has the pod's name, and the replicas listen on PORTS.
func TestPods(t *testing.T) {
	file := os.Getenv("PODS")
	if file == "" {
		t.Skip("PODS is not set: test/chart sets it")
	}
	o, err := render(read(t, os.Getenv("VALUES")))
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	for name, config := range o.configs {
		if o.sets[name] != nil {
			config.TypeMeta = meta.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
			all = append(all, config)
		}
	}
	for name, set := range o.sets {
		for n, port := range strings.Split(os.Getenv("PORTS"), ",") {
			if n == int(*set.Spec.Replicas) {
				break
			}
			pod := core.Pod{TypeMeta: meta.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
			pod.Name, pod.Annotations = fmt.Sprintf("%s-%d", name, n), nil // Podman takes 63 characters, Kubernetes any
			change(t, &pod.Spec, pod.Name, port)
			all = append(all, pod)
		}
	}
	var text strings.Builder
	for _, object := range all {
		doc, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(doc))
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func change(t *testing.T, spec *core.PodSpec, pod, port string) {
	t.Helper()
	c := &spec.Containers[0]
	for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			t.Fatal("a probe is missing")
		}
	}
	c.StartupProbe, c.LivenessProbe, c.ReadinessProbe, c.Ports = nil, nil, nil, nil
	i := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == "CANAL_OUTBOX_ADMIN_LISTEN" })
	c.Env[i].Value = "127.0.0.1:" + port
	i = slices.IndexFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == "state" })
	spec.Volumes[i].Name = pod
	i = slices.IndexFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == "state" })
	c.VolumeMounts[i].Name = pod
	i = slices.IndexFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == "secrets" })
	kind := core.HostPathDirectory
	spec.Volumes[i].VolumeSource = core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: os.Getenv("SECRETS"), Type: &kind}}
}
