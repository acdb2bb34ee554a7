package setting

import "fmt"

// Mask stands for a secret wherever one would be shown.
const Mask = "******"

// Secret is a text that is shown masked however it is formatted or encoded. One from a file follows the file: Get returns what is in it
// now. Copies of a Secret share what is known of it. The zero Secret is none.
type Secret struct{ *held }

// NewSecret returns the secret with a text; "" is none.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&held{text: text}}
}

// UnmarshalText reads the text form, which is the secret itself.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

// Set reports whether there is one.
func (s Secret) Set() bool { return s.held != nil }

// String returns a mask, or nothing when no secret is set.
func (s Secret) String() string {
	if s.held == nil {
		return ""
	}
	return Mask
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// Format is String for every verb: some would print what is inside.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText is String, for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// File is the path of a file that people replace while the process runs: with a secret, a certificate or a key. Get returns its content.
// Copies of a File share what is known of it. The zero File is none.
type File struct{ *held }

// NewFile returns the file with a path, which is not read yet; "" is none.
func NewFile(path string) File {
	if path == "" {
		return File{}
	}
	return File{&held{path: path}}
}

// UnmarshalText reads the path.
func (f *File) UnmarshalText(text []byte) error {
	*f = NewFile(string(text))
	return nil
}

// Set reports whether there is one.
func (f File) Set() bool { return f.held != nil }

// Secret returns the secret that the file holds.
func (f File) Secret() Secret { return Secret(f) }

// String returns the path.
func (f File) String() string {
	if f.held == nil {
		return ""
	}
	return f.path
}

// GoString is String, for %#v.
func (f File) GoString() string { return f.String() }

// Format is String, quoted where that is asked for.
func (f File) Format(s fmt.State, verb rune) {
	if verb == 'q' {
		fmt.Fprintf(s, "%q", f.String())
		return
	}
	fmt.Fprint(s, f.String())
}

// MarshalText is String, for encoders.
func (f File) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
