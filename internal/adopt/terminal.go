package adopt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/canal-outbox/canal-outbox/internal/translate"
)

// Terminal is where a person answers.
type Terminal struct {
	lines  *bufio.Reader
	out    io.Writer
	words  *translate.Catalogue // of the person's language
	hidden *os.File             // the terminal whose echo is turned off for a password; nil: it is read as a line
}

// NewTerminal returns the terminal of a command, with the language of its questions; nil when in is none.
func NewTerminal(in io.Reader, out io.Writer, words *translate.Catalogue) *Terminal {
	file, is := in.(*os.File)
	if !is || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return &Terminal{lines: bufio.NewReader(in), out: out, words: words, hidden: file}
}

func (t *Terminal) say(format string, args ...any) {
	_, _ = io.WriteString(t.out, t.words.Lines(fmt.Sprintf(format+"\n", args...))) // without a terminal to write to, the next question fails
}

// show prints what will be written, as it is.
func (t *Terminal) show(text string) {
	_, _ = io.WriteString(t.out, "\n"+text+"\n") // as say
}

// ask returns the answer, or the default for an empty one.
func (t *Terminal) ask(ctx context.Context, question, otherwise string) (string, error) {
	question = t.words.Text(question)
	if otherwise != "" {
		question += " [" + otherwise + "]"
	}
	if _, err := fmt.Fprintf(t.out, "%s: ", question); err != nil {
		return "", err
	}
	answer, err := wait(ctx, start(func() (string, error) { return t.lines.ReadString('\n') }))
	if err != nil {
		return "", err
	}
	if answer = strings.TrimSpace(answer); answer == "" {
		return otherwise, nil
	}
	return answer, nil
}

// yes asks a question whose default is no.
func (t *Terminal) yes(ctx context.Context, question string) (bool, error) {
	answer, err := t.ask(ctx, t.words.Text(question)+" [y/N]", "")
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}

// secret reads a line that is not shown. The question comes when the terminal shows nothing any more: what a fast hand or a program types at
// once is not shown either.
func (t *Terminal) secret(ctx context.Context, question string) (string, error) {
	if t.hidden == nil {
		return t.ask(ctx, question, "")
	}
	fd := int(t.hidden.Fd())
	shown, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	reading := start(func() (string, error) {
		text, err := term.ReadPassword(fd)
		return string(text), err
	})
	for tries := 0; tries < 1000 && len(reading) == 0; tries++ { // the library has no call for it; a terminal without an echo stays as it is
		if now, err := term.GetState(fd); err != nil || *now != *shown {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := fmt.Fprintf(t.out, "%s%s: ", t.words.Text(question), t.words.Text(" (not shown)")); err != nil {
		return "", errors.Join(err, term.Restore(fd, shown))
	}
	answer, err := wait(ctx, reading)
	if ctx.Err() != nil {
		err = errors.Join(err, term.Restore(fd, shown)) // the reading, which turned the echo off, continues
	}
	t.say("")
	return answer, err
}

// line is an answer, or why there is none.
type line struct {
	text string
	err  error
}

func start(read func() (string, error)) <-chan line {
	answered := make(chan line, 1)
	go func() {
		text, err := read()
		answered <- line{text, err}
	}()
	return answered
}

// wait returns when the person has answered, or with the context: a read of a terminal cannot be ended.
func wait(ctx context.Context, answered <-chan line) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case one := <-answered:
		if errors.Is(one.err, io.EOF) {
			one.err = errors.New("the input ended: nothing was written")
		}
		return one.text, one.err
	}
}
