package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// screen is the output: permanent lines, and a progress line with a header. A terminal redraws both in place, after everything
// else; elsewhere the header is printed once and each progress is a line. It is safe for concurrent use.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	headed   bool // the header was printed
	drawn    bool // the cursor is after a progress line that can be redrawn
	broken   func(error)
}

// newScreen writes to out. broken is called with each failed write.
func newScreen(out io.Writer, broken func(error)) *screen {
	return &screen{out: out, terminal: isTerminal(out), broken: broken}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Say prints a permanent line.
func (s *screen) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erase() + fmt.Sprintf(format, args...) + "\n")
}

// Progress prints or redraws the progress line.
func (s *screen) Progress(header, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.terminal:
		s.write(s.erase() + header + "\n" + line)
		s.drawn = true
	case s.headed:
		s.write(line + "\n")
	default:
		s.headed = true
		s.write("\n" + header + "\n" + line + "\n")
	}
}

// Keep makes the progress line permanent and continues below it.
func (s *screen) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn {
		s.drawn = false
		s.write("\n")
	}
}

// erase returns the text that removes the progress line and its header; the caller holds mu.
func (s *screen) erase() string {
	if !s.drawn {
		return ""
	}
	s.drawn = false
	const clearLine, up = "\r\x1b[K", "\x1b[A"
	return clearLine + up + clearLine
}

func (s *screen) write(text string) {
	if _, err := io.WriteString(s.out, text); err != nil {
		s.broken(fmt.Errorf("write the progress: %w", err))
	}
}

// count writes a number with thousands separated.
func count(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// brief writes a time with few digits.
func brief(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
}
