package main

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra/doc"
)

var (
	docFence = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	docSpan  = regexp.MustCompile("`(canal-outbox [^`]+)`")
	docWord  = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	docPlace = regexp.MustCompile(`^[A-Z][A-Z_]*$`)
	// docRest is what follows a command in a shell: comments, pipes, redirections.
	docRest = regexp.MustCompile(`\s(#|\||>|<|&&|;)\s.*`)
)

// commandsIn lists the commands of a page, without the program's name.
func commandsIn(page string) [][]string {
	var lines []string
	for _, block := range docFence.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			if rest, found := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "canal-outbox "); found {
				lines = append(lines, rest)
			}
		}
	}
	for _, span := range docSpan.FindAllStringSubmatch(docFence.ReplaceAllString(page, ""), -1) {
		lines = append(lines, strings.TrimPrefix(span[1], "canal-outbox "))
	}
	var commands [][]string
	for _, line := range lines {
		line = docRest.ReplaceAllString(" "+strings.NewReplacer("[", "", "]", "").Replace(line), "")
		var words []string
		for _, word := range docWord.FindAllString(line, -1) {
			words = append(words, strings.Trim(word, `"'`))
		}
		commands = append(commands, variants(words)...)
	}
	return slices.DeleteFunc(commands, func(words []string) bool { return len(words) == 0 })
}

// variants returns a command for each word that a page writes as a|b. Capitals stand for a value.
func variants(words []string) [][]string {
	for i, word := range words {
		if docPlace.MatchString(word) {
			words[i] = "1"
		}
		if !strings.Contains(word, "|") {
			continue
		}
		var all [][]string
		for one := range strings.SplitSeq(word, "|") {
			all = append(all, variants(slices.Concat(words[:i], []string{one}, words[i+1:]))...)
		}
		return all
	}
	return [][]string{words}
}

// Every command that a page names is there, with its flags and as many words as it takes.
func TestCommandsOfTheDocumentation(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "../.." && len(entry.Name()) > 2 {
			return err
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, words := range commandsIn(string(page)) {
			found++
			if err := known(words); err != nil {
				t.Errorf("%s: canal-outbox %s: %v", strings.TrimPrefix(path, "../../"), strings.Join(words, " "), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 30 {
		t.Errorf("only %d commands were found", found)
	}
}

// known checks one command line as far as that goes without running it.
func known(words []string) error {
	cmd, rest, err := newRoot(&cli{}).Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.HasSubCommands() && len(cmd.Flags().Args()) == 0 {
		return nil // the page speaks of the group
	}
	if cmd.Flags().NArg() == 0 {
		return nil // the page speaks of the command, or of one of its flags
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// A page that is wrong is found.
func TestKnownFindsWhatIsWrong(t *testing.T) {
	page := "Run `canal-outbox checkpoint sett --latest` or\n```sh\n$ canal-outbox status --lively   # now\ncanal-outbox gaps list 1 | less\n```\n"
	for _, words := range commandsIn(page) {
		if known(words) == nil {
			t.Errorf("%v was taken", words)
		}
	}
	if n := len(commandsIn(page)); n != 3 {
		t.Errorf("%d commands", n)
	}
}

var manDir = flag.String("man", "", "where TestManualPages leaves the pages; empty for nowhere")

// Each command has a manual page. `make man` keeps them.
func TestManualPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	root := newRoot(&cli{})
	root.DisableAutoGenTag = true
	date := time.Unix(0, 0).UTC() // the same bytes each time
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "canal-outbox", Manual: "canal-outbox", Date: &date}, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"canal-outbox", "canal-outbox-run", "canal-outbox-checkpoint-set"} {
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil || !strings.Contains(string(text), ".SH SYNOPSIS") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
