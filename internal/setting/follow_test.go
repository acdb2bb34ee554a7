package setting

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// write replaces the content of a file, which was written at a time.
func write(t *testing.T, path, content string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// filed returns a file with a content, and the secret in it.
func filed(t *testing.T, content string) (path string, s Secret) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	write(t, path, content, time.Now().Add(-time.Hour))
	s = NewFile(path).Secret()
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	return path, s
}

func wants(t *testing.T, s Secret, text string, troubles ...string) {
	t.Helper()
	if got := s.Get(); got != text {
		t.Errorf("the secret is %q, want %q", got, text)
	}
	found := s.Troubles()
	if len(found) != len(troubles) {
		t.Fatalf("troubles %q, want %q", found, troubles)
	}
	for i, part := range troubles {
		if !strings.Contains(found[i], part) {
			t.Errorf("trouble %q does not say %q", found[i], part)
		}
	}
}

func TestASecretFollowsItsFile(t *testing.T) {
	path, s := filed(t, "one\r\n")
	wants(t, s, "one")
	write(t, path, "two\n", time.Now().Add(-time.Minute))
	wants(t, s, "two")
	// As Kubernetes does it: the name leads to another file.
	other := path + ".new"
	write(t, other, "three", time.Now().Add(-time.Hour))
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	wants(t, s, "three")
}

// A file that is being written is not taken, whatever is in it then.
func TestASecretThatIsBeingWrittenIsNotTaken(t *testing.T) {
	path, s := filed(t, "the old one")
	ahead := time.Now().Add(time.Hour) // by a clock that is ahead, so that the test does not depend on how fast it is
	write(t, path, "", ahead)
	wants(t, s, "the old one")
	write(t, path, "the ne", ahead.Add(time.Second))
	wants(t, s, "the old one")
	write(t, path, "the new one", time.Now().Add(-time.Minute))
	wants(t, s, "the new one")
}

// A clock that is ahead delays the new secret, and does not keep it away.
func TestAFileFromTheFutureIsTaken(t *testing.T) {
	path, s := filed(t, "one")
	write(t, path, "two", time.Now().Add(time.Hour))
	testkit.WaitFor(t, time.Minute, "the new secret", func() bool { return s.Get() == "two" })
}

func TestAnUnusableFileKeepsTheLastSecret(t *testing.T) {
	path, s := filed(t, "one")
	write(t, path, "\n", time.Now().Add(-time.Minute))
	wants(t, s, "one", "("+path+") is empty since ")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wants(t, s, "one", "("+path+") cannot be read: no such file or directory since ")
	s.AtLeast(16)
	write(t, path, "short", time.Now().Add(-time.Minute))
	wants(t, s, "one", "holds less than 16 characters")
	write(t, path, "one", time.Now().Add(-time.Minute))
	s.AtLeast(0)
	wants(t, s, "one")
}

// The first refusal is the time that counts, until the server accepts. Copies share it.
func TestRefusals(t *testing.T) {
	path, s := filed(t, "one")
	other := s
	other.Refused("db:3306", errors.New("access denied"))
	began := s.Troubles()[0]
	wants(t, s, "one", "("+path+") is refused by db:3306 since ")
	s.Refused("db:3306", errors.New("access denied"))
	if now := s.Troubles()[0]; now != began {
		t.Errorf("the second refusal changes %q to %q", began, now)
	}
	s.Refused("replica:3306", errors.New("no such user"))
	wants(t, s, "one", "access denied", "no such user")
	s.Accepted("db:3306")
	wants(t, other, "one", "no such user")
	// A refused secret is read again though its file looks the same.
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "two", info.ModTime())
	wants(t, s, "one", "no such user") // read before the file changed, and accepted since
	s.Refused("replica:3306", errors.New("no such user"))
	wants(t, s, "two", "no such user")
	s.Accepted("replica:3306")
	wants(t, s, "two")
	inline := NewSecret("x")
	inline.Refused("kafka:9092", errors.New("no"))
	wants(t, inline, "x", "is refused by kafka:9092 since ")
}

func TestALoadSaysWhyThereIsNothing(t *testing.T) {
	path, _ := filed(t, "one")
	write(t, path, "", time.Now())
	for file, why := range map[string]string{path: "is empty", path + ".no": "cannot be read: no such file or directory"} {
		if text, err := NewFile(file).Load(); text != "" || err == nil || err.Error() != why {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	write(t, path, "half", time.Now()) // the start takes it, and looks again
	s := NewFile(path).Secret()
	if text, err := s.Load(); text != "half" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	write(t, path, "half and half", time.Now().Add(-time.Minute))
	wants(t, s, "half and half")
}

func TestSecretsAreNotShown(t *testing.T) {
	_, s := filed(t, "canary")
	file := struct {
		Secret Secret
		File   File
	}{s, File(s)}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		string(text), fmt.Sprint(file), fmt.Sprintf("%v %+v %#v %q %x %d", s, s, s, s, s, s), fmt.Sprintf("%v %+v %#v %q %x", file, file, file, file, file),
		fmt.Sprintf("%v %#v", []Secret{s}, map[string]Secret{"": s}),
	} {
		if strings.Contains(shown, "canary") || strings.Contains(shown, "63616e617279") {
			t.Errorf("shown in: %s", shown)
		}
	}
	if NewSecret("").Set() || NewFile("").Set() || (Secret{}).Get() != "" || (File{}).Troubles() != nil {
		t.Error("nothing is something")
	}
}
