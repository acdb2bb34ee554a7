package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const canary = "canary-c1a5"

const minimal = `
source: {address: db.example, user: relay}
tables: [{name: shop.t_local_message, preset: t_local_message}]
sink: {stdout: {}}
`

func parse(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	cfg, unknown, err := Parse("test.yaml", []byte(text), environ, testSinks)
	if err != nil {
		t.Fatal(err)
	}
	if len(unknown) > 0 {
		t.Fatalf("unknown environment variables: %v", unknown)
	}
	return cfg
}

func faults(t *testing.T, text string, environ ...string) []Fault {
	t.Helper()
	_, _, err := Parse("test.yaml", []byte(text), environ, testSinks)
	var all *Faults
	if err != nil && !errors.As(err, &all) {
		t.Fatalf("unexpected error %v", err)
	}
	if all == nil {
		return nil
	}
	return all.Faults
}

func TestDefaultsFillWhatIsLeftOut(t *testing.T) {
	want := Default()
	want.Source.Address, want.Source.User = "db.example:3306", "relay"
	want.Tables = []Table{{Name: "shop.t_local_message", Preset: "t_local_message"}}
	want.Sink = newSink(testSinks)
	want.Sink.section("stdout")
	if got := parse(t, minimal); !reflect.DeepEqual(*got, want) {
		t.Fatalf("got %+v\nwant %+v", *got, want)
	}
}

func TestEveryKindOfValue(t *testing.T) {
	cfg := parse(t, `
source: {address: "[::1]:3307", user: 007, heartbeat: 1m30s, server_id: 4294967295}
tables:
  - &shop
    name: shop.t_local_message
    preset: t_local_message
    columns: &columns {tag: msg_tag, headers: ""}
    codes: {pending: 0, sent: DONE}
    time_zone: "+08:00"
  - {<<: *shop, name: shop2.t_local_message, columns: *columns}
sink:
  kafka:
    brokers: ["a:1", "b:2"]
    max_message_bytes: 4MiB
retry: {schedule: [1m, 2h]}
`)
	if cfg.Source.User != "007" || cfg.Source.Heartbeat != 90*time.Second || cfg.Source.ServerID != 1<<32-1 {
		t.Errorf("source: %+v", cfg.Source)
	}
	first, second := cfg.Tables[0], cfg.Tables[1]
	if first.Columns["tag"] != "msg_tag" || first.Codes["pending"] != "0" {
		t.Errorf("table: %+v", first)
	}
	if first.Name = second.Name; !reflect.DeepEqual(first, second) {
		t.Errorf("merged table: got %+v, want %+v", second, first)
	}
	if k := kafkaOf(cfg); k.MaxMessageBytes != 4<<20 || len(k.Brokers) != 2 || k.Compression != "none" {
		t.Errorf("kafka: %+v", k)
	}
	if len(cfg.Retry.Schedule) != 2 || cfg.Retry.Schedule[1] != 2*time.Hour {
		t.Errorf("schedule: %v", cfg.Retry.Schedule)
	}
}

func TestWrongConfigurationsAreReportedWhole(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, _, err := Load(file, nil, testSinks)
			if err == nil {
				t.Fatal("it was accepted")
			}
			got := err.Error() + "\n"
			if strings.Contains(got, canary) {
				t.Errorf("a secret is shown: %s", got)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	cfg := parse(t, minimal+"retry: {schedule: [1m]}",
		"HOME=/root",
		"CANAL_OUTBOX_SOURCE_PASSWORD=from=environment",
		"CANAL_OUTBOX_SOURCE_TLS_MODE=required",
		"CANAL_OUTBOX_FALLBACK_INTERVAL=5s",
		"CANAL_OUTBOX_RETRY_SCHEDULE=1s, 2s",
		"CANAL_OUTBOX_TABLES_0_TIME_ZONE=+08:00",
		"CANAL_OUTBOX_CHECKPOINT_DIR=/state",
	)
	if cfg.Source.Password.Get() != "from=environment" || cfg.Source.TLS.Mode != "required" || cfg.Fallback.Interval != 5*time.Second ||
		cfg.Tables[0].TimeZone != "+08:00" || cfg.Checkpoint.Dir != "/state" || len(cfg.Retry.Schedule) != 2 || cfg.Retry.Schedule[1] != 2*time.Second {
		t.Fatalf("got %+v", cfg)
	}
}

// Every scalar has a variable: each one is set to a text that is invalid for any type but text, and must be reported or accepted.
func TestEveryScalarHasAVariable(t *testing.T) {
	cfg := Default()
	cfg.Sink = newSink(testSinks)
	cfg.Tables = []Table{{Columns: map[string]string{"tag": "x"}}}
	for _, kind := range testSinks {
		cfg.Sink.section(kind.Name)
	}
	var names []string
	var walk func(v reflect.Value, name string)
	walk = func(v reflect.Value, name string) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), name)
			}
		case reflect.Struct:
			if sinks, is := v.Addr().Interface().(*Sink); is {
				for kind, section := range sinks.All() {
					walk(reflect.ValueOf(section), name+"_"+strings.ToUpper(kind))
				}
				return
			}
			for i := range v.NumField() {
				walk(v.Field(i), name+"_"+strings.ToUpper(yamlName(v.Type().Field(i))))
			}
		case reflect.Map, reflect.Slice:
		default:
			names = append(names, name)
		}
	}
	walk(reflect.ValueOf(&cfg), "CANAL_OUTBOX")
	if len(names) < 40 {
		t.Fatalf("only %d scalars found", len(names))
	}
	var environ []string
	for _, name := range names {
		environ = append(environ, name+"=nonsense")
	}
	r := newReport()
	if unknown := r.overlay(&cfg, environ); len(unknown) > 0 {
		t.Fatalf("not taken: %v", unknown)
	}
	if cfg.Source.User != "nonsense" || kafkaOf(&cfg).SASL.User != "nonsense" {
		t.Errorf("a text was not set: %+v", cfg)
	}
	for _, f := range r.faults {
		if f.Source == "" {
			t.Errorf("%v: the variable is not named", f)
		}
	}
	if len(r.faults) < 12 {
		t.Errorf("only %d faults", len(r.faults))
	}
}

func TestUnknownVariablesAreReported(t *testing.T) {
	_, unknown, err := Parse("test.yaml", []byte(minimal), []string{
		"CANAL_OUTBOX_SOURCE_PASWORD=" + canary, "CANAL_OUTBOX_CACHE=/tmp", "CANAL_OUTBOX_SERVICE_HOST=10.0.0.1", "CANAL_OUTBOX_TABLES_7_NAME=a.b",
	}, testSinks)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(unknown), "[CANAL_OUTBOX_SOURCE_PASWORD CANAL_OUTBOX_TABLES_7_NAME]"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestAVariableMakesItsSink(t *testing.T) {
	cfg := parse(t, strings.Replace(minimal, "sink: {stdout: {}}", "", 1), "CANAL_OUTBOX_SINK_KAFKA_BROKERS=a:1,b:2")
	if k := kafkaOf(cfg); k == nil || len(k.Brokers) != 2 || k.Compression != "none" {
		t.Fatalf("got %+v", k)
	}
}

func TestSecretFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(canary+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	withFile := strings.Replace(minimal, "user: relay", "user: relay, password_file: "+file, 1)
	if got := parse(t, withFile).Source.Password.Get(); got != canary {
		t.Errorf("got %q", got)
	}
	if got := parse(t, withFile, "CANAL_OUTBOX_SOURCE_PASSWORD=other").Source.Password.Get(); got != "other" {
		t.Errorf("the environment did not override the file: %q", got)
	}
	both := strings.Replace(withFile, "user: relay", "user: relay, password: "+canary, 1)
	if got := faults(t, both); len(got) != 1 || got[0].Path != "source.password_file" {
		t.Errorf("both forms: %v", got)
	}
	missing := strings.Replace(minimal, "user: relay", "user: relay, password_file: /nowhere/at/all", 1)
	if got := faults(t, missing); len(got) != 1 || !strings.Contains(got[0].String(), "no such file") {
		t.Errorf("missing file: %v", got)
	}
}

func TestASecretIsNeverShown(t *testing.T) {
	secret := func(s string) string { return strings.ReplaceAll(s, "SECRET", canary) }
	cfg := parse(t, secret(`
source: {address: db, user: relay, password: SECRET}
tables: [{name: shop.t_local_message, preset: t_local_message}]
sink: {kafka: {brokers: ["k:9092"], sasl: {mechanism: plain, user: relay, password: SECRET}}}
admin: {token: SECRETSECRET}
`))
	printed, err := cfg.Print()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		string(printed), string(asJSON), string(asYAML), fmt.Sprint(cfg.Source), fmt.Sprintf("%v %+v %#v", *cfg, cfg.Source, cfg.Source),
		fmt.Sprintf("%s %q", cfg.Source.Password, cfg.Source.Password), cfg.Source.Password.GoString(),
	} {
		if strings.Contains(shown, canary) {
			t.Errorf("shown in: %s", shown)
		}
	}
	if !strings.Contains(string(printed), "password: '"+setting.Mask+"'") && !strings.Contains(string(printed), "password: \""+setting.Mask+"\"") {
		t.Errorf("the mask is missing: %s", printed)
	}
}

func TestPrintReadsBack(t *testing.T) {
	for _, text := range []string{minimal, strings.Replace(minimal, "stdout: {}", `rocketmq: {name_servers: ["n:9876"]}`, 1)} {
		first := parse(t, text)
		printed, err := first.Print()
		if err != nil {
			t.Fatal(err)
		}
		again := parse(t, string(printed)+"\n")
		if second, err := again.Print(); err != nil || string(second) != string(printed) {
			t.Errorf("printed %s\nread back as %s (%v)", printed, second, err)
		}
	}
}

// Addresses are written without quotes wherever YAML allows it, also in a list inside braces.
func TestAddressesInsideBraces(t *testing.T) {
	for _, sink := range []string{
		"{kafka: {brokers: [10.0.0.7:9092, kafka-2:9092]}}", "{kafka: {brokers: [\"10.0.0.7:9092\", kafka-2:9092]}}",
		"{kafka: {brokers: [10.0.0.7:9092 , kafka-2:9092], compression: lz4}}",
	} {
		text := "source: {address: 127.0.0.1:3306, user: u}\ntables: [{name: shop.t, preset: t_local_message}]\nsink: " + sink + "\n"
		cfg, _, err := Parse("test", []byte(text), nil, testSinks)
		if err != nil {
			t.Errorf("%s: %v", sink, err)
			continue
		}
		if got := strings.Join(kafkaOf(cfg).Brokers, " "); got != "10.0.0.7:9092 kafka-2:9092" || cfg.Source.Address != "127.0.0.1:3306" {
			t.Errorf("%s is read as %q, %q", sink, got, cfg.Source.Address)
		}
	}
	if _, _, err := Parse("test", []byte("source: {user: u}\nsink: {kafka: {brokers: [host: 9092]}}"), nil, testSinks); err == nil || !strings.Contains(err.Error(), "a mapping") {
		t.Errorf("a mapping instead of an address: %v", err)
	}
}
