package adopt

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// content is what the configuration says. What is empty is not known yet.
type content struct {
	address      string
	server       string // for people
	user         string
	passwordFile string // "": the environment has the password, or there is none
	environment  bool   // it has
	sqlFile      string // ""
	table        entry
	kind         string // of the sink
	servers      []string
	state        string
}

// entry is the one of tables.
type entry struct {
	name, preset string
	topic        string
	columns      map[string]string
	codes        map[string]string
	guessed      bool
	unseen       []string // statuses whose word no row shows
}

// serversKey is the key of the broker's addresses.
func (c content) serversKey() string {
	switch c.kind {
	case "kafka":
		return "sink.kafka.brokers"
	case "rocketmq":
		return "sink.rocketmq.name_servers"
	}
	return "sink." + c.kind
}

// render writes the configuration: what differs from the defaults, and what a person should know.
func (c content) render() string {
	var b strings.Builder
	line := func(text, comment string) {
		if comment != "" {
			text = fmt.Sprintf("%-36s # %s", text, comment)
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	line("# Written by `canal-outbox init`. Keys that are not here have their defaults: docs/configuration.md.", "")
	line("# `canal-outbox config validate` checks this file, `canal-outbox doctor` checks what it names.", "")
	line("", "")
	line("source:", "")
	line("  address: "+scalar(c.address), strings.TrimPrefix(c.server+", the primary", ", "))
	rights := ""
	if c.sqlFile != "" {
		rights = "its privileges are in " + c.sqlFile
	}
	line("  user: "+scalar(c.user), rights)
	switch {
	case c.passwordFile != "":
		line("  password_file: "+scalar(c.passwordFile), "")
	case c.environment:
		line("  # The password comes from CANAL_OUTBOX_SOURCE_PASSWORD or CANAL_OUTBOX_SOURCE_PASSWORD_FILE.", "")
	}
	line("  # The connection is encrypted if the server can, and the server's certificate is not verified. Better:", "")
	line("  # tls: {mode: verify-identity, ca: /etc/canal-outbox/ca.pem}", "")
	line("", "")
	c.table.render(line)
	line("", "")
	line("sink:", "")
	switch c.kind {
	case "kafka", "rocketmq":
		_, key, _ := strings.Cut(strings.TrimPrefix(c.serversKey(), "sink."), ".")
		line("  "+c.kind+":", "create the topics before the first row; doctor names those that are missing")
		line("    "+key+": ["+strings.Join(each(c.servers), ", ")+"]", "")
	default:
		line("  stdout: {}", "prints the messages; a broker: kafka: {brokers: [...]}")
	}
	line("", "")
	line("checkpoint:", "")
	line("  dir: "+scalar(c.state), "must survive restarts; one process at a time")
	line("", "")
	line("# SENT rows stay in the table until an age is set; the account then needs DELETE on it.", "")
	line("# retention: {sent: 168h}", "")
	return b.String()
}

func (e entry) render(line func(text, comment string)) {
	comment := ""
	if e.preset != "" && e.preset != "outbox" {
		comment = "docs/layouts/" + e.preset + ".md"
	}
	line("tables:", "")
	name, preset := e.name, e.preset
	if name == "" { // not known yet
		name, preset = "unknown.unknown", "outbox"
	}
	line("  - name: "+scalar(name), "")
	line("    preset: "+preset, comment)
	if e.guessed {
		line("    # No preset fits: the columns were found by names and types. Check them.", "")
	}
	if len(e.columns) > 0 {
		line("    columns: "+flow(e.columns), "")
	}
	if len(e.codes) > 0 {
		line("    codes: "+flow(e.codes), "")
	}
	if len(e.unseen) > 0 {
		line("    # No row shows the word for "+strings.Join(e.unseen, ", ")+": the preset's is taken. Another one: codes: {failed: ...}", "")
	}
	if e.topic != "" {
		line("    topic: "+scalar(e.topic), "")
	}
}

// flow writes a map in one line.
func flow(m map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, key+": "+scalar(m[key]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func each(values []string) (quoted []string) {
	for _, v := range values {
		quoted = append(quoted, scalar(v))
	}
	return quoted
}

// plain are texts that YAML reads as themselves, also inside brackets.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*(:[0-9]+)?$`)

// scalar writes a text.
func scalar(text string) string {
	switch strings.ToLower(text) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
	default:
		if plain.MatchString(text) {
			return text
		}
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(text) + `"`
}

// safe are words that a shell leaves alone.
var safe = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// word writes an argument for a shell.
func word(text string) string {
	if safe.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
