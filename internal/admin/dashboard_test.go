package admin

import (
	"strings"
	"testing"
)

func TestThePageNeedsNothingElse(t *testing.T) {
	for _, foreign := range []string{"http://", "https://", "src=", "@import", "url(", "innerHTML", "eval("} {
		if strings.Contains(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), foreign) {
			t.Errorf("the page holds %q", foreign)
		}
	}
	if strings.Count(page, "<script>") != 1 || strings.Count(page, "<style>") != 1 || strings.Contains(page, " style=") {
		t.Error("the policy allows one script and one style element")
	}
}
