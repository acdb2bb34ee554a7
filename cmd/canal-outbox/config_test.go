package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The output of config print is a configuration: it is valid, and shows no secret, wherever the secret came from.
func TestWhatConfigPrintWritesIsValid(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("secret", "canary-c1a5-and-more\n")
	for name, sink := range map[string]string{
		"kafka":               "kafka: {brokers: ['127.0.0.1:9092'], sasl: {mechanism: plain, user: u, password: canary-c1a5}}",
		"kafka, from a file":  "kafka: {brokers: ['127.0.0.1:9092'], sasl: {mechanism: plain, user: u, password_file: '" + secret + "'}}",
		"rocketmq":            "rocketmq: {name_servers: ['127.0.0.1:9876'], access_key: a, secret_key_file: '" + secret + "'}",
		"stdout, plain token": "stdout: {}",
	} {
		token := "token_file: '" + secret + "'"
		if strings.HasSuffix(name, "token") {
			token = "token: canary-c1a5-and-more"
		}
		file := write("config.yaml", "source: {address: '127.0.0.1:3306', user: relay, password_file: '"+secret+"'}\n"+
			"tables: [{name: shop.t_local_message, preset: t_local_message}]\nsink: {"+sink+"}\ncheckpoint: {dir: /tmp/s}\nadmin: {listen: '127.0.0.1:9180', "+token+"}\n")
		for _, format := range []string{"text", "json"} {
			printed := run("", "config", "print", "-c", file, "-o", format)
			if printed.code != 0 || strings.Contains(printed.out, "canary") {
				t.Errorf("%s: %+v", name, printed)
			}
			if got := run("", "config", "validate", "-c", write("printed.yaml", printed.out)); got.code != 0 {
				t.Errorf("%s, %s: %+v\n%s", name, format, got, printed.out)
			}
		}
	}
}
