package main

import (
	"bytes"
	"io"
	"strings"
	"text/tabwriter"

	"golang.org/x/text/width"
)

// explain is show in the language of the person who reads it.
func (c *cli) explain(value any, write func(w io.Writer)) error {
	if c.words == nil {
		return c.show(value, write)
	}
	var english, text bytes.Buffer
	write(&english)
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	if _, err := io.WriteString(w, widen(c.words.Lines(english.String()))); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(c.out, strings.ReplaceAll(text.String(), second, ""))
	return err
}

// second represents the second column of a wide character while tabwriter counts characters: ZERO WIDTH SPACE.
const second = "\u200b"

// widen adds to each character the columns that it takes in a terminal beyond the first (Unicode Standard Annex 11).
func widen(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
		if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
			b.WriteString(second)
		}
	}
	return b.String()
}
