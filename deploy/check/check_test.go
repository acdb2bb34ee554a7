// Package check reads the files in deploy with the code of those who will read them: Helm, the types of Kubernetes' and the
// Prometheus operator's API, decoded strictly, and the loader of Docker Compose. It owns no goroutine.
package check

import (
	"os"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// Compose takes the sample, with each of its profiles.
func TestCompose(t *testing.T) {
	for _, profiles := range [][]string{nil, {"kafka"}} {
		options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithProfiles(profiles), cli.WithEnv(os.Environ()))
		if err != nil {
			t.Fatal(err)
		}
		project, err := options.LoadProject(t.Context())
		if err != nil {
			t.Fatalf("profiles %v: %v", profiles, err)
		}
		if _, err := project.GetService("relay"); err != nil || len(project.Services) < 8 {
			t.Errorf("profiles %v: %d services, %v", profiles, len(project.Services), err)
		}
	}
}
