package kafka

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// B31: client versions before 1.22.2 could acknowledge what was not written (franz-go #1484).
func TestB31_TheClientIsNoneThatAcknowledgesWhatIsNotWritten(t *testing.T) {
	const least = 1_022_002
	pins, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	pin := regexp.MustCompile(`(?m)^\s*(?:require )?github\.com/twmb/franz-go (v\S+)$`).FindSubmatch(pins)
	if pin == nil {
		t.Fatal("go.mod does not name the client")
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(string(pin[1]), "v%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatalf("version %s: %v", pin[1], err)
	}
	if major*1_000_000+minor*1000+patch < least {
		t.Errorf("the client is %s", pin[1])
	}
	if regexp.MustCompile(`github\.com/twmb/franz-go (?:v\S+ )?=>`).Match(pins) {
		t.Error("the client is replaced by another")
	}
}
