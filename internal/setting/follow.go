package setting

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// settled is how long a file must stay as it is before its content is taken: an editor or a shell empties it first and writes then.
	settled = time.Second
	// forgotten is when a refusal that does not happen again counts no more: its server may be gone.
	forgotten = 15 * time.Minute
)

// held is what a Secret and a File share: the content that was taken last, and what is wrong with it. All copies of one point to it.
type held struct {
	path  string // of the file; "" for a text of the configuration
	least int    // a shorter text is not taken

	mu      sync.Mutex
	text    string      // as taken last
	taken   fs.FileInfo // of the file when text was in it; nil: it must be read
	seen    fs.FileInfo // of the file at the last look
	since   time.Time   // when it was first seen as it is
	trouble map[string]trouble
}

// trouble is why a server refuses a text, or, by "", why the content of the file is not in use.
type trouble struct {
	since, last time.Time
	why         string
}

// Get returns the text. That of a file is read again when the file has changed, and when a server has refused it. What is in a file
// that is empty, cannot be read or was written less than a second ago does not count yet: Get returns what was there before, "" if
// there was nothing. One line break at the end is no part of it.
func (h *held) Get() string {
	if h == nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.path != "" {
		h.follow(time.Now(), settled)
	}
	return h.text
}

// Load is Get for the start: what is in the file counts at once, and the error says why there is nothing.
func (h *held) Load() (string, error) {
	if h == nil {
		return "", nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.path == "" {
		return h.text, nil
	}
	now := time.Now()
	h.follow(now, 0)
	if fault, is := h.trouble[""]; is {
		return "", errors.New(fault.why)
	}
	if h.seen != nil && now.Sub(h.seen.ModTime()) < settled {
		h.taken = nil // it may be half written: look at it once more
	}
	return h.text, nil
}

// AtLeast refuses texts with fewer characters, now and whenever the file has another one.
func (h *held) AtLeast(characters int) { h.least = characters }

// Path is that of the file; "" for a text of the configuration.
func (h *held) Path() string {
	if h == nil {
		return ""
	}
	return h.path
}

// follow takes the content of the file if it is another one, and was left alone for some time.
func (h *held) follow(now time.Time, quiet time.Duration) {
	info, err := os.Stat(h.path)
	if err != nil {
		h.unusable(now, "cannot be read: "+withoutPath(err))
		return
	}
	if same(info, h.taken) {
		delete(h.trouble, "")
		return
	}
	if !same(info, h.seen) {
		h.seen, h.since = info, now
	}
	// By our own clock or by the file's: either may be ahead.
	if now.Sub(h.since) < quiet && now.Sub(info.ModTime()) < quiet {
		return
	}
	data, err := os.ReadFile(h.path)
	if err != nil {
		h.unusable(now, "cannot be read: "+withoutPath(err))
		return
	}
	if after, err := os.Stat(h.path); err != nil || !same(info, after) {
		return // it changed meanwhile
	}
	text := string(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r")))
	switch {
	case text == "":
		h.unusable(now, "is empty")
	case len(text) < h.least:
		h.unusable(now, fmt.Sprintf("holds less than %d characters and could be guessed", h.least))
	default:
		h.text, h.taken = text, info
		delete(h.trouble, "")
	}
}

func same(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// withoutPath is the error of a file alone: the path is named where it is shown.
func withoutPath(err error) string {
	var named *fs.PathError
	if errors.As(err, &named) {
		err = named.Err
	}
	return err.Error()
}

func (h *held) unusable(now time.Time, why string) { h.note("", now, why) }

func (h *held) note(by string, now time.Time, why string) {
	t, known := h.trouble[by]
	if !known || by != "" && now.Sub(t.last) > forgotten {
		t.since = now
	}
	t.last, t.why = now, why
	if h.trouble == nil {
		h.trouble = map[string]trouble{}
	}
	h.trouble[by] = t
}

// Refused records that a server, by its address, did not accept the text. The file is read again, whether or not it seems to have
// changed. why must hold no part of the text.
func (h *held) Refused(by string, why error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = nil
	h.note(by, time.Now(), why.Error())
}

// Accepted ends what Refused began.
func (h *held) Accepted(by string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.trouble, by)
}

// Troubles says what is wrong at present, each in words that follow the name of the key.
func (h *held) Troubles() (list []string) {
	if h == nil {
		return nil
	}
	h.Get() // a file may have become unusable, or usable
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, by := range slices.Sorted(maps.Keys(h.trouble)) {
		t := h.trouble[by]
		since := t.since.UTC().Format(time.RFC3339)
		switch {
		case by == "":
			list = append(list, fmt.Sprintf("(%s) %s since %s: what was in it before is still used", h.path, t.why, since))
		case now.Sub(t.last) > forgotten:
		case h.path == "":
			list = append(list, fmt.Sprintf("is refused by %s since %s: %s", by, since, t.why))
		default:
			list = append(list, fmt.Sprintf("(%s) is refused by %s since %s: %s; the file is read again at each try", h.path, by, since, t.why))
		}
	}
	return list
}
