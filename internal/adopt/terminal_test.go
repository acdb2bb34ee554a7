package adopt_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/adopt"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// person answers questions: the first line whose question is the end of what was printed.
type person struct {
	mu      sync.Mutex
	printed bytes.Buffer
	answers [][2]string // question, answer
	typed   *io.PipeWriter
	asked   func(question string) // called before each answer
	unknown string
}

func newPerson(answers ...[2]string) (*person, *adopt.Terminal) {
	in, typed := io.Pipe()
	p := &person{answers: answers, typed: typed, asked: func(string) {}}
	return p, adopt.TerminalOn(in, p)
}

// Write is what the command prints.
func (p *person) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printed.Write(text)
	if !bytes.HasSuffix(text, []byte(": ")) {
		return len(text), nil
	}
	if len(p.answers) == 0 || !strings.Contains(string(text), p.answers[0][0]) {
		p.unknown = string(text)
		return len(text), p.typed.Close()
	}
	p.asked(p.answers[0][0])
	answer := p.answers[0][1]
	p.answers = p.answers[1:]
	go func() { _, _ = fmt.Fprintln(p.typed, answer) }() // its error is the end of the test
	return len(text), nil
}

func (p *person) shows(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(p.printed.String(), part) {
			t.Errorf("not printed: %q\n%s", part, p.printed.String())
		}
	}
	if len(p.answers) > 0 || p.unknown != "" {
		t.Errorf("not asked: %v, without an answer: %q\n%s", p.answers, p.unknown, p.printed.String())
	}
}

// dialogue is a whole conversation, with a wrong answer to each question first.
func dialogue(p *place, free string) [][2]string {
	return [][2]string{
		{"Address of the database", free},
		{"Account that looks at it", ""},
		{"Password of root", ""},
		{"Address of the database", p.db.Addr()},
		{"Account that looks at it", "finder_" + p.schema},
		{"Password of finder", "finder"},
		{"Table (a number, or schema.table) [1]", p.schema + ".absent"},
		{"Table (a number", ""},
		{"Broker", "kafka"},
		{"Its brokers", free},
		{"Broker", "pigeons"},
		{"Broker", "stdout"},
		{"Write these files?", "y"},
	}
}

// finder is an account that sees the schema alone, and may give nothing to others.
func (p *place) finder() {
	p.t.Helper()
	testkit.Must(p.t, p.db.CreateUser(p.t.Context(), "finder_"+p.schema, "finder", "SELECT, UPDATE ON "+p.schema+".*", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*"))
}

// On a terminal each wrong answer is explained and asked again. An account that may not create others is the relay's own, and a typed
// password goes into a file of its own.
func TestConversation(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		p := newPlace(t, flavor)
		p.exec(layouts.All()[1].Create()) // without an index on the status
		p.finder()
		human, terminal := newPerson(dialogue(p, testkit.FreeAddress(t))...)
		a := adopt.Answers{Files: adopt.Files{Config: p.file("canal-outbox.yaml"), State: p.file("state")}}
		result, err := adopt.Run(t.Context(), a, environment, terminal)
		if err != nil {
			t.Fatalf("%v\n%s", err, human.printed.String())
		}
		human.shows(t, "! source.address = ", "fix: check source.address", "1  "+p.schema+".local_message_2 ", "preset t_local_message", "there is no such table", "The preset t_local_message fits: 13 columns in use.",
			"! sink.kafka.brokers = ", `"pigeons" is none of the three`, p.file("canal-outbox.yaml")+":", "  source:", "(the password of the account, mode 0600)")
		if read(t, p.file("mysql-password")) != "finder\n" || strings.Contains(read(t, result.Config), "password: ") {
			t.Errorf("the typed password:\n%s", read(t, result.Config))
		}
		if result.Applied || !strings.Contains(read(t, result.SQL), "ADD INDEX") || strings.Contains(read(t, result.SQL), "CREATE USER") {
			t.Errorf("the SQL: %v\n%s", result.Applied, read(t, result.SQL))
		}
		if len(result.Next) != 3 || !strings.HasSuffix(result.Next[0], " --user=ADMINISTRATOR -p < "+result.SQL) {
			t.Errorf("next: %v", result.Next)
		}
	})
}

// An interrupt at any question, and the end of the input, leave nothing; after the files are written they stay.
func TestInterruptAtEachQuestion(t *testing.T) {
	p := newPlace(t, testkit.MySQL)
	p.exec(layouts.All()[1].Create())
	p.finder()
	free := testkit.FreeAddress(t)
	all := dialogue(p, free)
	for n := range all {
		for _, end := range []string{"interrupt", "end of the input"} {
			t.Run(fmt.Sprintf("%s at %d", end, n), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				human, terminal := newPerson(all...)
				want, asked := "interrupted: nothing was written", 0
				if end == "interrupt" {
					human.asked = func(string) {
						if asked == n {
							cancel()
						}
						asked++
					}
				} else {
					human.answers, want = all[:n], "the input ended: nothing was written"
				}
				a := adopt.Answers{Files: adopt.Files{Config: p.file("canal-outbox.yaml"), State: p.file("state")}}
				if _, err := adopt.Run(ctx, a, environment, terminal); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v\n%s", err, human.printed.String())
				}
				p.nothingIsWritten()
			})
		}
	}
	human, terminal := newPerson([2]string{"Password of root", ""}, [2]string{"Write these files?", "y"}) // the input ends at the question about the SQL
	a := p.answers("local_message_2")
	a.Yes = false
	if _, err := adopt.Run(t.Context(), a, environment, terminal); err == nil || !strings.Contains(err.Error(), "the files are written, and the SQL was not run") {
		t.Errorf("%v\n%s", err, human.printed.String())
	}
	if names := p.names(); len(names) != 3 {
		t.Errorf("files: %v", names)
	}
}

// A table of no preset: its columns are shown, and the meaning of its numbers is asked.
func TestConversationAboutAnUnknownTable(t *testing.T) {
	p := newPlace(t, testkit.MariaDB)
	p.exec("CREATE TABLE mq (id INT PRIMARY KEY, topic VARCHAR(20) NOT NULL, payload TEXT, state INT NOT NULL, KEY (state))")
	p.exec("INSERT INTO mq VALUES (1, 'a', 'b', 7), (2, 'a', 'b', 8)")
	a := p.answers("mq")
	a.Yes = false
	human, terminal := newPerson([2]string{"Password of root", ""}, [2]string{"that is to be sent", "7"}, [2]string{"being sent (- for none) [-]", ""}, [2]string{"that was sent", "8"},
		[2]string{"failed for good", "9"}, [2]string{"Write these files?", "y"}, [2]string{"Run it now, as root?", "yes"})
	result, err := adopt.Run(t.Context(), a, environment, terminal)
	if err != nil {
		t.Fatalf("%v\n%s", err, human.printed.String())
	}
	human.shows(t, `No preset fits this table. By names and types its columns are {id: id, message_id: id, topic: topic, body: payload, status: state}.`, `Values of the column state: "7" (1 row), "8" (1 row).`)
	text := read(t, result.Config)
	for _, part := range []string{"# No preset fits", `codes: {failed: "9", pending: "7", sending: "", sent: "8"}`, "message_id: id"} {
		if !strings.Contains(text, part) {
			t.Errorf("not in the configuration: %s\n%s", part, text)
		}
	}
	if result.Faults() > 0 || !result.Applied {
		t.Errorf("%+v", result)
	}
}

// Words in the rows of a preset's table are recognised; a word that no row shows is named.
func TestWordsAreRecognised(t *testing.T) {
	p := newPlace(t, testkit.MySQL)
	b := layouts.All()[2]
	p.exec(b.Create())
	for n, state := range []string{"待发送", "已发送", "已消费", "draft"} {
		p.exec(fmt.Sprintf("INSERT INTO %s (id, message_type, message_key, topic, message_body, state, retry_count, lock_version) VALUES (%d, 'a', 'k%d', 'orders', 'x', '%s', 0, 0)", b.Table, n, n, state))
	}
	result, err := p.run(p.answers(b.Table))
	testkit.Must(t, err)
	text := read(t, result.Config)
	for _, part := range []string{`codes: {consumed: "已消费", pending: "待发送", sent: "已发送"}`, "# No row shows the word for failed"} {
		if !strings.Contains(text, part) {
			t.Errorf("not in the configuration: %s\n%s", part, text)
		}
	}
}

// What an interrupted run has left is used by the next one.
func TestLeftOverPassword(t *testing.T) {
	p := newPlace(t, testkit.MySQL)
	p.exec(layouts.All()[0].Create())
	testkit.Must(t, os.WriteFile(p.file("mysql-password"), []byte("Left-over-4711\n"), 0o600))
	testkit.Must(t, os.WriteFile(p.file("canal-outbox.sql"), []byte("-- Written by `canal-outbox init` for x\n"), 0o600))
	a := p.answers("t_local_message")
	a.Apply = true
	result, err := p.run(a)
	testkit.Must(t, err)
	if result.PasswordFile != "" || !strings.Contains(read(t, result.SQL), "IDENTIFIED BY 'Left-over-4711'") || result.Faults() > 0 {
		t.Errorf("%+v", result)
	}
}
