package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const deploy = "../../deploy/"

func load(t *testing.T, file string, environ ...string) *Config {
	t.Helper()
	cfg, unknown, err := Load(file, environ, testSinks)
	if err != nil || len(unknown) > 0 {
		t.Fatalf("%s: %v %v", file, unknown, err)
	}
	return cfg
}

func TestSampleConfigurationLoads(t *testing.T) {
	cfg := load(t, deploy+"canal-outbox.yaml")
	if cfg.Sink.Kind() != "rocketmq" || len(cfg.Tables) != 1 {
		t.Errorf("got %+v", cfg)
	}
}

// The sample names every key, so that no key must be guessed.
func TestSampleConfigurationNamesEveryKey(t *testing.T) {
	data, err := os.ReadFile(deploy + "canal-outbox.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch {
		case isScalar(v.Type()):
		case v.Kind() == reflect.Pointer && !v.IsNil():
			walk(v.Elem())
		case v.Kind() == reflect.Slice && v.Len() > 0:
			walk(v.Index(0))
		case v.Kind() == reflect.Struct:
			if sinks, is := v.Addr().Interface().(*Sink); is {
				for kind, section := range sinks.All() {
					if !strings.Contains(string(data), kind+":") {
						t.Errorf("%s is not in the sample", kind)
					}
					walk(reflect.ValueOf(section))
				}
				return
			}
			for i := range v.NumField() {
				key := yamlName(v.Type().Field(i))
				if !regexp.MustCompile(`(?m)(^|[\s#{,])` + key + `:`).Match(data) {
					t.Errorf("%s is not in the sample", key)
				}
				walk(v.Field(i))
			}
		}
	}
	all := Documented(testSinks)
	walk(reflect.ValueOf(&all))
}

// compose is the checked part of docker-compose.yml.
type compose struct {
	Services map[string]struct {
		Image       string
		Build       *struct{ Context, Dockerfile string }
		Command     []string
		Entrypoint  []string
		Volumes     []string
		Ports       []string
		Environment map[string]string
		Profiles    []string
		ReadOnly    bool `yaml:"read_only"`
		Healthcheck *struct{ Test []string }
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	Volumes map[string]any
}

func TestComposeFileIsSound(t *testing.T) {
	data, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	// The library takes a key that overrides a merged one for a second one.
	if err := yaml.UnmarshalWithOptions(data, &c, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mysql", "namesrv", "broker", "kafka", "relay", "relay-kafka", "producer"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
	}
	pinned := regexp.MustCompile(`^[a-z/]+:v?\d+\.\d+\.\d+$`)
	for name, s := range c.Services {
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s: the image %q is not pinned to a version", name, s.Image)
		}
		if s.Build != nil && !s.ReadOnly {
			t.Errorf("%s: our own container can write its file system", name)
		}
		for other, how := range s.DependsOn {
			needed, ok := c.Services[other]
			if !ok || how.Condition == "service_healthy" && needed.Healthcheck == nil {
				t.Errorf("%s waits for %s, which is not there or has no health check", name, other)
			}
			if len(needed.Profiles) > 0 && len(s.Profiles) == 0 {
				t.Errorf("%s always runs and waits for %s, which needs a profile", name, other)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s to other machines", name, port)
			}
		}
		checkVolumes(t, c, name, s.Volumes, s.Environment)
	}
}

// checkVolumes: files that are mounted exist, configurations load with the service's environment, volumes are declared.
func checkVolumes(t *testing.T, c compose, name string, volumes []string, environment map[string]string) {
	for _, v := range volumes {
		source, target, _ := strings.Cut(v, ":")
		if !strings.HasPrefix(source, "./") {
			if _, ok := c.Volumes[source]; !ok {
				t.Errorf("%s: volume %s is not declared", name, source)
			}
			continue
		}
		file := filepath.Join("../..", source)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(target, "/etc/canal-outbox/canal-outbox.yaml") {
			var environ []string
			for key, value := range environment {
				environ = append(environ, key+"="+value)
			}
			load(t, file, environ...)
		}
	}
}

func TestAlertsAreComplete(t *testing.T) {
	data, err := os.ReadFile(deploy + "prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(data, &rules, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] || r.Expr == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q lacks something or is there twice", r.Alert)
			}
			seen[r.Alert] = true
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d alerts", len(seen))
	}
}
