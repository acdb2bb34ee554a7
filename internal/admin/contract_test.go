package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Routes with their roles and parameters, and the fields of bodies and answers with their types.
func TestContractAPI(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Role       string `json:"x-role"`
			Parameters []struct{ Name string }
			Body       struct{ Content media } `json:"requestBody"`
			Responses  map[string]struct{ Content media }
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]property
				Required   []string
			}
		}
	}
	testkit.Must(t, json.Unmarshal(document((&api{}).table()), &doc))
	var lines []string
	for path, methods := range doc.Paths {
		for method, r := range methods {
			name := strings.ToUpper(method) + " " + path
			lines = append(lines, name+" role "+r.Role)
			for _, p := range r.Parameters {
				lines = append(lines, name+" parameter "+p.Name)
			}
			for of, m := range r.Body.Content {
				lines = append(lines, fmt.Sprintf("%s body %s %s", name, of, m.Schema))
			}
			for status, answer := range r.Responses {
				if status[0] == '4' || status == "500" { // as docs/api.md says of all
					continue
				}
				for of, m := range answer.Content {
					lines = append(lines, fmt.Sprintf("%s %s %s %s", name, status, of, m.Schema))
				}
			}
		}
	}
	for name, s := range doc.Components.Schemas {
		for field, p := range s.Properties {
			lines = append(lines, fmt.Sprintf("type %s.%s %s", name, field, p))
		}
	}
	slices.Sort(lines)
	testkit.Contract(t, "api", lines)
}

type media map[string]struct{ Schema property }

// property is a schema in short: its type, or the name of one.
type property map[string]any

func (p property) String() string {
	if ref, is := p["$ref"].(string); is {
		return ref[strings.LastIndexByte(ref, '/')+1:]
	}
	text := ""
	switch inner := p["items"].(type) {
	case map[string]any:
		text = "list of " + property(inner).String()
	default:
		text = fmt.Sprint(p["type"])
	}
	if inner, is := p["additionalProperties"].(map[string]any); is {
		text = "map of " + property(inner).String()
	}
	if all, is := p["allOf"].([]any); is && len(all) > 0 {
		text = property(all[0].(map[string]any)).String()
	}
	if p["type"] == nil && text == "<nil>" {
		text = "anything"
	}
	if p["nullable"] == true {
		text += " or null"
	}
	return text
}

// The relay serves the lists that the page about compatibility names.
func TestTheHandbookHasTheLists(t *testing.T) {
	for path, want := range map[string]int{"contract/api.txt": http.StatusOK, "contract/none.txt": http.StatusNotFound} {
		r := httptest.NewRequest(http.MethodGet, "/docs/"+path, nil)
		r.SetPathValue("page", path)
		w := httptest.NewRecorder()
		handbook()(w, r)
		if w.Code != want || want == http.StatusOK && !strings.Contains(w.Body.String(), "GET /api/v1/status role reader\n") {
			t.Errorf("%s: %d %.80s", path, w.Code, w.Body)
		}
	}
}
