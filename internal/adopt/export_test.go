package adopt

import (
	"bufio"
	"io"
)

// TerminalOn is a terminal on any reader, which shows what is typed.
func TerminalOn(in io.Reader, out io.Writer) *Terminal {
	return &Terminal{lines: bufio.NewReader(in), out: out}
}
