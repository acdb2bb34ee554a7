package definition

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	end    kind = iota
	word        // a keyword or a name without quotes
	quoted      // a name in quotes
	text        // a string
	number
	sign // any other character
)

// token is a part of a statement. text has no quotes.
type token struct {
	kind kind
	text string
}

// is reports whether a token is one of these keywords or characters.
func (t token) is(words ...string) bool {
	if t.kind != word && t.kind != sign {
		return false
	}
	for _, w := range words {
		if strings.EqualFold(t.text, w) {
			return true
		}
	}
	return false
}

// name reports whether a token can be a name.
func (t token) name() bool { return t.kind == word || t.kind == quoted }

// lexer splits a statement. Comments are left out; a comment that this server executes is read as what it contains.
type lexer struct {
	Statement
	at       int
	executed bool // inside of such a comment
	wide     bool // bytes above 0x80 begin a character of two bytes
	tokens   []token
}

var errCharset = errors.New("its text is in a character set that is not read")

func (s Statement) tokens() ([]token, error) {
	l := lexer{Statement: s}
	if bytes.ContainsFunc(s.SQL, func(r rune) bool { return r >= utf8.RuneSelf }) {
		switch s.Charset {
		case Narrow:
		case Wide:
			l.wide = true
		default:
			if !utf8.Valid(s.SQL) || s.Charset != UTF8 {
				return nil, errCharset
			}
		}
	}
	for l.at < len(l.SQL) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, nil
}

func (l *lexer) rest() []byte { return l.SQL[l.at:] }

func (l *lexer) starts(prefix string) bool { return bytes.HasPrefix(l.rest(), []byte(prefix)) }

func (l *lexer) add(k kind, text string) { l.tokens = append(l.tokens, token{k, text}) }

func (l *lexer) next() error {
	switch c := l.SQL[l.at]; {
	case c == ' ' || c >= '\t' && c <= '\r' || c == 0:
		l.at++
	case c == '#', l.starts("-- "), l.starts("--\n"), l.starts("--\t"):
		if n := bytes.IndexByte(l.rest(), '\n'); n >= 0 {
			l.at += n
		} else {
			l.at = len(l.SQL)
		}
	case l.starts("/*"):
		return l.comment()
	case l.executed && l.starts("*/"):
		l.at, l.executed = l.at+2, false
	case c == '`', c == '"' && l.ANSIQuotes:
		return l.quotes(quoted, c)
	case c == '"' || c == '\'':
		return l.quotes(text, c)
	case c >= '0' && c <= '9':
		return l.number()
	case part(c):
		return l.word()
	default:
		l.add(sign, string(c))
		l.at++
	}
	return nil
}

// part reports whether a byte can be part of a name without quotes.
func part(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

func (l *lexer) word() error {
	from := l.at
	for l.at < len(l.SQL) && part(l.SQL[l.at]) {
		if l.SQL[l.at] >= 0x80 && l.Charset != UTF8 {
			return errCharset // a name, and the server stores names in UTF-8
		}
		l.at++
	}
	l.add(word, string(l.SQL[from:l.at]))
	return nil
}

// number reads a number, or a name that begins with a digit.
func (l *lexer) number() error {
	from := l.at
	digits := func() {
		for l.at < len(l.SQL) && l.SQL[l.at] >= '0' && l.SQL[l.at] <= '9' {
			l.at++
		}
	}
	digits()
	if l.at+1 < len(l.SQL) && l.SQL[l.at] == '.' && l.SQL[l.at+1] >= '0' && l.SQL[l.at+1] <= '9' {
		l.at++
		digits()
	}
	if l.at < len(l.SQL) && part(l.SQL[l.at]) {
		if bytes.IndexByte(l.SQL[from:l.at], '.') >= 0 {
			return fmt.Errorf("the number %q is not read", l.SQL[from:l.at+1])
		}
		l.at = from
		return l.word()
	}
	l.add(number, string(l.SQL[from:l.at]))
	return nil
}

// quotes reads a string or a name in quotes.
func (l *lexer) quotes(k kind, quote byte) error {
	var out []byte
	for i := l.at + 1; i < len(l.SQL); i++ {
		switch c := l.SQL[i]; {
		case c == '\\' && k == text && !l.NoBackslashEscapes && i+1 < len(l.SQL):
			i++
			out = append(out, l.SQL[i]) // the value of a string has no meaning here
		case c == quote && i+1 < len(l.SQL) && l.SQL[i+1] == quote:
			i++
			out = append(out, c)
		case c == quote:
			l.at = i + 1
			l.add(k, string(out))
			return nil
		case c >= 0x80 && k == quoted && l.Charset != UTF8:
			return errCharset
		case c >= 0x80 && l.wide && i+1 < len(l.SQL):
			i++
		default:
			out = append(out, c)
		}
	}
	return errors.New("a quote is not closed")
}

// comment skips a comment, or only its opening when the server executes what it contains.
func (l *lexer) comment() error {
	if opening, version, ok := l.conditional(); ok && !l.executed && l.executes(version) {
		l.at, l.executed = l.at+opening, true
		return nil
	}
	for depth := 0; l.at < len(l.SQL); {
		switch {
		case l.starts("*/"):
			l.at += 2
			if depth--; depth == 0 {
				return nil
			}
		case l.starts("/*") && depth < 2:
			l.at += 2
			depth++
		default:
			l.at++
		}
	}
	return errors.New("a comment is not closed")
}

// conditional reads the opening of a comment with a condition: its length, and the version in it, which may be "".
func (l *lexer) conditional() (opening int, version string, ok bool) {
	switch {
	case l.starts("/*!"):
		opening = len("/*!")
	case l.starts("/*M!") && l.Server.MariaDB:
		opening = len("/*M!")
	default:
		return 0, "", false
	}
	digits := 0
	for rest := l.rest()[opening:]; digits < min(6, len(rest)) && rest[digits] >= '0' && rest[digits] <= '9'; {
		digits++
	}
	if digits < 5 { // no version: they belong to the text
		return opening, "", true
	}
	return opening + digits, string(l.rest()[opening : opening+digits]), true
}

// executes reports whether this server executes a comment for servers of a version. MariaDB ignores those for MySQL 5.7 and newer.
func (l *lexer) executes(version string) bool {
	n, err := strconv.Atoi(version)
	if err != nil {
		return version == ""
	}
	return n <= l.Server.Version && (!l.Server.MariaDB || n < 50700 || n > 99999)
}
